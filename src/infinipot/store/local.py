"""Pots in a folder, one file each.

    NAME.pot                 a whole pot
    NAME.DIGEST.archive      the archive of the text that the pot has read
    .NAME.pot.RANDOM.tmp/    being written, or left by a killed process: swept by the next save of NAME
    .locks/NAME.lock         held by the writer of NAME
    tenants/ID/              the same again for a tenant
The folder itself may be a link; nothing in it may be.
"""

import stat
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from infinipot.common import atomic_files
from infinipot.common.atomic_files import failing_to
from infinipot.errors import StoreError
from infinipot.store.base import SUFFIX, WAIT_S, PotStore, check

_LOCKS, _TENANTS = ".locks", "tenants"


class LocalStore(PotStore):
    """Pots in a folder, which is made when the first one is kept."""

    def __init__(self, folder: Path, tenant: str = "") -> None:
        self._top = folder
        self.folder = folder / _TENANTS / tenant if tenant else folder
        self.where = str(self.folder)

    def space(self, tenant: str) -> "LocalStore":
        """Return the store of one tenant, which sees no other's pots."""
        return LocalStore(self._top, check(tenant))

    @contextmanager
    def lock(self, name: str, wait_s: float = WAIT_S) -> Iterator[None]:
        """Hold a pot's name against other writers; a thread may hold it more than once."""
        file = self._made() / _LOCKS / f"{check(name)}.lock"
        self._refuse_links(file)
        lock = FileLock(file, is_singleton=True, mode=0o600)  # one a path: so it can be held twice
        with failing_to(f"lock pot '{name}'"):
            try:
                held = lock.acquire(timeout=wait_s)
            except Timeout:
                problem = f"pot '{name}' is being written by someone else"
                raise StoreError(problem, remedy="try again when that is done") from None
        with held:
            yield

    def files(self) -> Iterable[str]:
        """Return the names of the files in this folder."""
        self._refuse_links()
        with failing_to(f"list {self.where}"):
            return [path.name for path in self.folder.iterdir()] if self.folder.exists() else []

    @contextmanager
    def opened(self, name: str, suffix: str = SUFFIX, head: bool = False) -> Iterator[Path]:  # noqa: ARG002
        """Give a pot's own file."""
        self.require(name)
        what = f"pot '{name}'" if suffix == SUFFIX else f"the archive of pot '{name}'"
        yield atomic_files.regular(self._path(name, suffix), what)

    def written(self, name: str, suffix: str = SUFFIX) -> AbstractContextManager[Path]:
        """Give a path aside; what is written there becomes the pot when the block ends well."""
        self._sweep(name, suffix)
        return atomic_files.aside(self._path(name, suffix))

    def _remove(self, name: str, suffix: str = SUFFIX) -> None:
        with failing_to(f"remove {(path := self._path(name, suffix)).name} of pot '{name}'"):
            self._sweep(name, suffix)
            path.unlink()
            atomic_files.sync(self.folder)

    def _is_left(self, file: str) -> bool:  # noqa: ARG002  a writer holds the lock
        """Say whether no other writer can be at work on a file."""
        return True

    def _sweep(self, name: str, suffix: str) -> None:
        """Remove what a killed writer of a file left aside."""
        self._refuse_links(path := self._path(name, suffix))
        atomic_files.sweep(path)

    def _path(self, name: str, suffix: str) -> Path:
        return self.folder / f"{check(name)}{suffix}"

    def _made(self) -> Path:
        """Make the folders, for their owner alone."""
        self._refuse_links(self.folder / _LOCKS)
        remedy = "choose another folder with `store`, or set INFINIPOT_HOME"
        with failing_to(f"keep pots in {self.where}", remedy, field="store"):
            self._top.mkdir(mode=0o700, parents=True, exist_ok=True)
            for folder in (self.folder.parent, self.folder, self.folder / _LOCKS):
                if folder != self._top.parent:
                    folder.mkdir(mode=0o700, exist_ok=True)
        return self.folder

    def _refuse_links(self, path: Path | None = None) -> None:
        """Refuse a link, or a folder in a pot's place, on the way to a path in this store."""
        path = path or self.folder
        inside = [path, *path.parents]
        for part in inside[: inside.index(self._top)]:
            with failing_to(f"look into {self.where}"), suppress(FileNotFoundError):
                mode = part.lstat().st_mode
                if stat.S_ISLNK(mode) or (part.suffix == SUFFIX and stat.S_ISDIR(mode)):
                    raise StoreError(f"{part} is a link or a folder, not a pot", remedy="remove it")
