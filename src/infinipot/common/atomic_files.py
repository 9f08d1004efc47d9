"""Files that are whole or not there: read without following links, written aside and renamed.

A file gets its name after its bytes are on the disk, and the folder is synced after that: a process
killed at any moment leaves the old file or the new one. Knows nothing of what is in a file.
"""

from __future__ import annotations

import os
import re
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from infinipot.errors import StoreError

ASIDE = ".tmp"
_RANDOM = re.compile(rf"[0-9a-f]{{16}}{re.escape(ASIDE)}")  # how what is written aside ends
_CLOSED = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
_STRICT = getattr(os, "O_NOFOLLOW", 0)
_NOW = getattr(os, "O_NONBLOCK", 0)  # a pipe without a writer would be waited for


@contextmanager
def reading(path: Path, what: str, follow: bool = False) -> Iterator[tuple[BinaryIO, int]]:
    """Open a regular file; give its stream and size. A link is refused unless it may be followed."""
    try:
        if not follow and path.is_symlink():
            raise StoreError(f"{what} is a link to somewhere else, which is not followed: remove {path}")
        handle = os.open(path, os.O_RDONLY | _CLOSED | _NOW | (0 if follow else _STRICT))
        with os.fdopen(handle, "rb") as stream:
            found = os.fstat(handle)
            if not stat.S_ISREG(found.st_mode):
                raise StoreError(f"{what} is not a regular file: give one that `infinipot pots export` wrote")
            yield stream, found.st_size
    except OSError as error:
        raise StoreError(f"cannot read {what}: {reason(error)}") from error


@contextmanager
def writing(path: Path) -> Iterator[BinaryIO]:
    """Write a file aside; give it its name when the block ends well, else remove it."""
    aside = path.with_name(f".{path.name}.{secrets.token_hex(8)}{ASIDE}")
    try:
        handle = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _CLOSED | _STRICT, 0o600)
        try:
            with os.fdopen(handle, "wb") as stream:
                yield stream
                stream.flush()
                os.fsync(handle)
            aside.replace(path)
            sync_folder(path.parent)
        finally:
            with suppress(FileNotFoundError):
                aside.unlink()
    except OSError as error:
        raise StoreError(
            f"cannot write {path}: {reason(error)}; what was there is unchanged: free some space, or use "
            "another folder"
        ) from error


def sweep(path: Path) -> None:
    """Remove what a killed process left of writing this file; nobody may be writing it now."""
    for left in path.parent.glob(f".{path.name}.*{ASIDE}"):
        if is_aside(left.name, path.name):
            with suppress(OSError):
                left.unlink()


def is_aside(file: str, name: str) -> bool:
    """Say whether a file is what was written aside for this name: not for a longer one that begins alike."""
    begin = f".{name}."
    return file.startswith(begin) and bool(_RANDOM.fullmatch(file.removeprefix(begin)))


def sync_folder(folder: Path) -> None:
    """Bring a folder's names to the disk."""
    if os.name == "nt":  # folders cannot be opened there
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def reason(error: OSError) -> str:
    """Say why, without where."""
    if isinstance(error, FileNotFoundError):
        return "there is no such file"
    return (error.strerror or str(error)).lower()


class Tee:
    """A stream that writes down all that is read from it."""

    def __init__(self, source: BinaryIO, copy: BinaryIO) -> None:
        self._source, self._copy = source, copy

    def read(self, count: int) -> bytes:
        """Read so many bytes."""
        found = self._source.read(count)
        self._copy.write(found)
        return found

    def readinto(self, block: memoryview) -> int:
        """Read into memory; return how many bytes."""
        count: int = self._source.readinto(block)  # type: ignore[attr-defined]  # every stream we open has it
        self._copy.write(block[:count])
        return count
