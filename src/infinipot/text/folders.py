"""Folders and patterns as lists of files: sorted, without hidden files, links and what tools put there."""

import glob
import os
from collections.abc import Iterator
from pathlib import Path

from infinipot.errors import InputError

_LEFT_OUT = frozenset({"__pycache__", "node_modules"})
Named = tuple[Path, str]  # a file, and what it is called


def is_pattern(name: str) -> bool:
    """Say whether a name stands for several files: a folder, or a pattern that no file is called by."""
    return Path(name).is_dir() or (glob.has_magic(name) and not os.path.lexists(name))


def files_of(name: str) -> list[Named]:
    """Return the files of a folder or pattern by name, those in hidden folders and links left out."""
    found = sorted(_walked(Path(name)) if Path(name).is_dir() else _matching(name), key=lambda one: one[1])
    if not found:
        what = f"there are no files in {name}" if Path(name).is_dir() else f"no file is called like '{name}'"
        raise InputError(what, remedy="hidden files are not looked at")
    return found


def _walked(folder: Path) -> Iterator[Named]:
    top = folder.resolve().name
    for where, inner, names in os.walk(folder):
        inner[:] = sorted(one for one in inner if _is_shown(one))
        for name in filter(_is_shown, names):
            path = Path(where, name)
            if path.is_file() and not path.is_symlink():
                yield path, Path(top, path.relative_to(folder)).as_posix()


def _matching(pattern: str) -> Iterator[Named]:
    fixed = Path(pattern[: next(at for at, letter in enumerate(pattern) if letter in "*?[")] + "x").parent
    for name in glob.iglob(pattern, recursive=True):  # noqa: PTH207  a whole path is a pattern
        path = Path(name)
        shown = path.relative_to(fixed) if path.is_relative_to(fixed) else path
        if path.is_file() and not path.is_symlink() and all(map(_is_shown, shown.parts)):
            yield path, shown.as_posix()


def _is_shown(name: str) -> bool:
    return not name.startswith(".") and name not in _LEFT_OUT
