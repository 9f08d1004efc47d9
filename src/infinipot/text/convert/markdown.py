"""Markdown as it is, in sections: each heading outside of a block of code begins a named piece."""

import re
from collections.abc import Iterable, Iterator

from infinipot.text.convert.outline import Sections
from infinipot.text.files import BLOCK

_HEADING = re.compile(r" {0,3}(#{1,6})[ \t]+(.*?)(?:[ \t]+#+)?[ \t]*\r?\n?$")
_FENCE = re.compile(r" {0,3}(```+|~~~+)")


def sections(pieces: Iterable[str]) -> Iterator[str]:
    """Yield a text unchanged, in pieces of which those that begin a section know its name."""
    found, fence = Sections(), ""
    for line in _lines(pieces):
        if mark := _FENCE.match(line):
            fence = "" if fence and mark[1].startswith(fence) else fence or mark[1]
        heading = None if fence or mark else _HEADING.fullmatch(line)
        yield from found.begin(len(heading[1]), heading[2], line) if heading else found.add(line)
    yield from found.flush()


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
