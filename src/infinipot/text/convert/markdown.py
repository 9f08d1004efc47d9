"""Markdown as it is, in sections: each heading outside of a block of code begins a named piece."""

import re
from collections.abc import Iterable, Iterator

from infinipot.text.convert.outline import Outline
from infinipot.text.files import BLOCK, named

_HEADING = re.compile(r" {0,3}(#{1,6})[ \t]+(.*?)(?:[ \t]+#+)?[ \t]*\r?\n?$")
_FENCE = re.compile(r" {0,3}(```+|~~~+)")


def sections(pieces: Iterable[str]) -> Iterator[str]:
    """Yield a text unchanged, in pieces of which those that begin a section know its name."""
    outline, waiting, name, bare, fence = Outline(), "", "", True, ""
    new = True  # nothing of the section was given out yet
    for line in _lines(pieces):
        if mark := _FENCE.match(line):
            fence = "" if fence and mark[1].startswith(fence) else fence or mark[1]
        heading = None if fence or mark else _HEADING.fullmatch(line)
        if heading:
            if not bare:
                yield from _piece(waiting, name, new)
                waiting, new, bare = "", True, True
            name = outline.enter(len(heading[1]), heading[2])
        bare = bare and (heading is not None or not line.strip())
        waiting += line
        if len(waiting) > BLOCK:
            yield from _piece(waiting, name, new)
            waiting, new, bare = "", False, False
    yield from _piece(waiting, name, new)


def _piece(text: str, name: str, new: bool) -> Iterator[str]:
    if text:
        yield from named([text], name) if new else [text]


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
