"""Markdown as it is, in sections: each heading outside of a block of code begins a named piece."""

import re
from collections.abc import Iterable, Iterator

from infinipot.text.convert.outline import Sections
from infinipot.text.files import BLOCK

_FENCE = re.compile(r" {0,3}(```+|~~~+)")


def sections(pieces: Iterable[str]) -> Iterator[str]:
    """Yield a text unchanged, in pieces of which those that begin a section know its name."""
    found, fence = Sections(), ""
    for line in _lines(pieces):
        if mark := _FENCE.match(line):
            fence = "" if fence and mark[1].startswith(fence) else fence or mark[1]
        heading = None if fence or mark else _heading(line)
        yield from found.begin(*heading, line) if heading else found.add(line)
    yield from found.flush()


def _heading(line: str) -> tuple[int, str] | None:
    """Return the level and the words of a line that is a heading; linear in its length."""
    marked = line.lstrip(" ")
    words = marked.lstrip("#")
    level = len(marked) - len(words)
    if len(line) - len(marked) > 3 or not 1 <= level <= 6 or not words.startswith((" ", "\t")):
        return None
    bare = (words := words.strip()).rstrip("#")  # marks at its end are no words, if a space is before them
    return level, bare.rstrip() if bare.endswith((" ", "\t")) else words


def _lines(pieces: Iterable[str]) -> Iterator[str]:
    """Yield the lines of a text; one that is very long comes in parts."""
    rest = ""
    for piece in pieces:
        lines = (rest + piece).splitlines(keepends=True)
        rest = lines.pop() if lines and not lines[-1].endswith("\n") else ""
        yield from lines
        if len(rest) > BLOCK:
            yield rest
            rest = ""
    if rest:
        yield rest
