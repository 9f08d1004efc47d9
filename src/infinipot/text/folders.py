"""Folders and patterns as lists of files: sorted, without hidden files, links and what tools put there."""

import fnmatch
import glob
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from infinipot.errors import InputError

_LEFT_OUT = frozenset({"__pycache__", "node_modules"})
Named = tuple[Path, str]  # a file, and what it is called


def is_pattern(name: str) -> bool:
    """Say whether a name stands for several files: a folder, or a pattern that no file is called by."""
    return Path(name).is_dir() or (glob.has_magic(name) and not os.path.lexists(name))


def files_of(name: str) -> list[Named]:
    """Return the files of a folder or pattern by name, those in hidden folders and links left out."""
    folder = Path(name)
    top = folder.resolve().name
    inside = ((path, f"{top}/{shown}") for path, shown in _walked(folder))
    found = sorted(inside if folder.is_dir() else _matching(name), key=lambda one: one[1])
    if not found:
        what = f"there are no files in {name}" if folder.is_dir() else f"no file is called like '{name}'"
        raise InputError(what, remedy="hidden files are not looked at")
    return found


def _walked(folder: Path, deepest: int | None = None) -> Iterator[Named]:
    """Yield the files of a folder, and of folders in it down to a depth; links are not followed."""
    top = len(folder.parts)
    for where, inner, names in os.walk(folder):
        depth = len(Path(where).parts) - top
        inner[:] = [one for one in inner if _is_shown(one) and (deepest is None or depth < deepest)]
        for name in filter(_is_shown, names):
            path = Path(where, name)
            if path.is_file() and not path.is_symlink():
                yield path, path.relative_to(folder).as_posix()


def _matching(pattern: str) -> Iterator[Named]:
    plain = pattern[: next(at for at, letter in enumerate(pattern) if letter in "*?[")]
    folder = Path(f"{plain}x").parent
    wanted = Path(pattern).relative_to(folder).parts
    for path, shown in _walked(folder, None if "**" in wanted else len(wanted) - 1):
        if _fits(shown.split("/"), wanted):
            yield path, shown


def _fits(parts: Sequence[str], wanted: Sequence[str]) -> bool:
    """Say whether the parts of a path are those of a pattern, where ** stands for any number of folders."""
    if not wanted or not parts:
        return not wanted and not parts
    if wanted[0] == "**":
        return _fits(parts, wanted[1:] or ["*"]) or _fits(parts[1:], wanted)
    return fnmatch.fnmatchcase(parts[0], wanted[0]) and _fits(parts[1:], wanted[1:])


def _is_shown(name: str) -> bool:
    return not name.startswith(".") and name not in _LEFT_OUT
