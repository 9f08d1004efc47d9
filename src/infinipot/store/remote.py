"""Pots at any fsspec address: s3://, gs://, az://, sftp://, memory://.

A pot is written under a temporary key and then moved to its name. There are no locks at such places: of two
writers of one name the last wins. What a killed process left goes with a later save of the same name.
"""

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from infinipot.common.atomic_files import aside_name, is_aside
from infinipot.common.extras import needed_for
from infinipot.errors import InfiniPotError, StoreError
from infinipot.store.base import SUFFIX, WAIT_S, PotStore, check
from infinipot.store.file import LONGEST_HEAD
from infinipot.store.local import LocalStore


def open_remote(address: str) -> PotStore:
    """Return the store at an fsspec address."""
    with needed_for("a store at an address", "remote"):
        import fsspec  # type: ignore[import-untyped]
    try:
        system, path = fsspec.core.url_to_fs(address)
    except Exception as error:  # a driver is missing, or trips over something in the address
        raise StoreError(f"{address} cannot be used as a store: {_line(error)}") from error
    if isinstance(system, fsspec.get_filesystem_class("file")):
        return LocalStore(Path(path))
    return RemoteStore(system, path.rstrip("/"), address)


class RemoteStore(PotStore):
    """Pots below one path of an fsspec file system."""

    def __init__(self, system: Any, path: str, where: str = "", tenant: str = "") -> None:
        self._system, self._top, self._tenant = system, path, tenant
        self._at = f"{path}/tenants/{tenant}" if tenant else path
        self.where = where or path

    def space(self, tenant: str) -> "RemoteStore":
        """Return the store of one tenant, which sees no other's pots."""
        return RemoteStore(self._system, self._top, self.where, check(tenant))

    @contextmanager
    def lock(self, name: str, wait_s: float = WAIT_S) -> Iterator[None]:  # noqa: ARG002  nothing to wait for
        """Check the name; there is nothing to hold at such a place."""
        check(name)
        yield

    def files(self) -> Iterable[str]:
        """Return the names of the files at this address."""
        with self._one_line("list"):
            try:
                self._system.invalidate_cache(self._at)
                return [str(entry).rpartition("/")[2] for entry in self._system.ls(self._at, detail=False)]
            except FileNotFoundError:
                return []

    @contextmanager
    def opened(self, name: str, suffix: str = SUFFIX, head: bool = False) -> Iterator[Path]:
        """Give a pot in a temporary file; for its head alone, a file as long with nothing behind it."""
        self.require(name)
        key = self._key(name, suffix)
        with self._one_line("read"), TemporaryDirectory() as folder:
            path = Path(folder) / "pot"
            if not head:
                self._system.get_file(key, str(path))
            else:
                with self._system.open(key, "rb", block_size=2**18) as stream, path.open("wb") as local:
                    local.write(count := stream.read(8))
                    local.write(stream.read(min(int.from_bytes(count, "little"), LONGEST_HEAD)))
                    local.truncate(self._system.size(key))
            yield path

    @contextmanager
    def written(self, name: str, suffix: str = SUFFIX) -> Iterator[Path]:
        """Give a temporary path; what is written there is sent under a temporary key and then renamed."""
        aside = f"{self._at}/{aside_name(name + suffix)}"
        with self._one_line("write"), TemporaryDirectory() as folder:
            yield (path := Path(folder) / "pot")
            self._sweep(name, suffix)
            self._system.makedirs(self._at, exist_ok=True)
            try:
                self._system.put_file(str(path), aside)
                self._system.mv(aside, self._key(name, suffix))
            except BaseException:
                with suppress(Exception):
                    self._system.rm_file(aside)
                raise

    def _remove(self, name: str, suffix: str = SUFFIX) -> None:
        with self._one_line("write"):
            self._sweep(name, suffix)
            self._system.rm_file(self._key(name, suffix))

    def _sweep(self, name: str, suffix: str) -> None:
        """Remove what was left an hour ago; without locks, something younger may be at work."""
        for file in self.files():
            if is_aside(file, name + suffix) and self._is_left(file):
                with suppress(Exception):
                    self._system.rm_file(f"{self._at}/{file}")

    def _is_left(self, file: str) -> bool:
        """Say whether a file is older than an hour."""
        with suppress(Exception):
            return bool(time.time() - self._system.modified(f"{self._at}/{file}").timestamp() > 3600)
        return False

    def _key(self, name: str, suffix: str) -> str:
        return f"{self._at}/{check(name)}{suffix}"

    @contextmanager
    def _one_line(self, verb: str) -> Iterator[None]:
        """Turn whatever a driver raises into one line."""
        try:
            yield
        except InfiniPotError:
            raise
        except Exception as error:  # drivers have errors of their own
            raise StoreError(f"cannot {verb} {self.where}: {_line(error)}") from error


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__
