"""Files that are whole or not there: written aside, brought to the disk, then renamed.

A file gets its name after its bytes are on the disk, and the folder is synced after that: a process
killed at any moment leaves the old file or the new one. Knows nothing of what is in a file.
"""

import os
import re
import secrets
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from infinipot.errors import InfiniPotError, StoreError

ASIDE = ".tmp"
_RANDOM = re.compile(rf"[0-9a-f]{{16}}{re.escape(ASIDE)}")  # how the name of what is written aside ends


@contextmanager
def failing_to(
    do: str, remedy: str = "", field: str = "", kind: type[InfiniPotError] = StoreError
) -> Iterator[None]:
    """Turn an error of the operating system in the block into one line: cannot do this, for that reason."""
    try:
        yield
    except OSError as error:
        raise kind(f"cannot {do}: {reason(error)}", field=field, remedy=remedy) from error


def reason(error: OSError) -> str:
    """Return the operating system's reason in words, without the path."""
    known = {FileNotFoundError: "there is no such file", IsADirectoryError: "it is a directory"}
    return known.get(type(error)) or (error.strerror or str(error)).lower()


def regular(path: Path, what: str, follow: bool = False) -> Path:
    """Return the path of a regular file; a link is refused unless it may be followed, a pipe always."""
    with failing_to(f"read {what}"):
        mode = (path.stat() if follow else path.lstat()).st_mode
    if stat.S_ISLNK(mode):
        raise StoreError(f"{what} is a link, which is not followed", remedy=f"remove {path}")
    if not stat.S_ISREG(mode):
        raise StoreError(f"{what} is not a regular file", remedy="give one that was exported")
    return path


@contextmanager
def aside(path: Path) -> Iterator[Path]:
    """Give a path to write to; the file there becomes `path` when the block ends well, else it is removed.

    It lies in a folder of its own: a library that writes a file may put a temporary one beside it.
    """
    folder = path.with_name(aside_name(path.name))
    with failing_to(f"write {path}", "what was there is unchanged: free some space, or use another folder"):
        folder.mkdir(mode=0o700)
        try:
            yield (half := folder / path.name)
            half.chmod(0o600)
            sync(half)
            half.replace(path)
            sync(path.parent)
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def aside_name(name: str) -> str:
    """Return a new name for what is written aside for this one."""
    return f".{name}.{secrets.token_hex(8)}{ASIDE}"


def is_aside(file: str, name: str) -> bool:
    """Say whether a file was written aside for this name, not for a longer name that begins alike."""
    begin = f".{name}."
    return file.startswith(begin) and bool(_RANDOM.fullmatch(file.removeprefix(begin)))


def sweep(path: Path) -> None:
    """Remove what a killed process left of writing this file; the caller holds the file's lock."""
    for left in path.parent.glob(f".{path.name}.*{ASIDE}"):
        if is_aside(left.name, path.name):
            shutil.rmtree(left, ignore_errors=True)
            with suppress(OSError):
                left.unlink()


def sync(path: Path) -> None:
    """Bring a file's bytes, or a folder's names, to the disk."""
    if os.name == "nt" and path.is_dir():  # folders cannot be opened there
        return
    handle = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
