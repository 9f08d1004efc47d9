"""HTML to text: paragraphs, lists, tables and headings; scripts and styles are left out."""

import codecs
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from typing import BinaryIO

from infinipot.text.convert.outline import Outline, Sections
from infinipot.text.files import BLOCK, is_charset

_UNSHOWN = frozenset({"script", "style", "template", "noscript", "svg", "iframe", "select", "title"})
_BLOCKS = frozenset(
    (
        *("address", "article", "aside", "blockquote", "body", "caption", "dd", "details", "div", "dl", "dt"),
        *("fieldset", "figcaption", "figure", "footer", "form", "header", "hr", "html", "li", "main", "nav"),
        *("ol", "p", "pre", "section", "summary", "table", "tbody", "tfoot", "thead", "tr", "ul"),
    )
)
_LINES = frozenset({"li", "dt", "dd", "tr", "caption", "figcaption", "summary"})  # end with a line, no more
_HEADINGS = {f"h{level}": level for level in range(1, 7)}
_CHARSET = re.compile(rb"""(?:charset|encoding)\s*=\s*["']?\s*([\w-]+)""", re.IGNORECASE)
_SPACES = re.compile(r"[ \t\n\f\r]+")


class Markup(HTMLParser):
    """Python's own parser, which no input makes fail."""

    def parse_marked_section(self, i: int, report: bool = True) -> int:
        """Take what looks like a section of SGML and is none for a comment, as browsers do."""
        try:
            return super().parse_marked_section(i, report)
        except AssertionError:
            return self.parse_bogus_comment(i, report)


class Page(Markup):
    """Takes a page in parts of any size; gives out its text as it becomes whole."""

    def __init__(self, outline: Outline | None = None) -> None:
        super().__init__(convert_charrefs=True)
        self._sections, self._out = Sections(outline), list[str]()
        self._text, self._hidden, self._kept = "", list[str](), 0
        self._level: int | None = None  # of the heading that is open

    def take(self, data: str) -> Iterator[str]:
        """Take more of the page; yield pieces of its text."""
        self.feed(data)
        yield from self._given()

    def end(self) -> Iterator[str]:
        """Yield the rest."""
        self.close()
        self._break("\n\n")
        self._out += self._sections.flush()
        yield from self._given()

    def _given(self) -> Iterator[str]:
        out, self._out = self._out, []
        return iter(out)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:  # noqa: ARG002  the library's
        """Open an element."""
        if tag in _UNSHOWN:
            self._hidden.append(tag)
        elif tag in _HEADINGS:
            self._break("\n\n")
            self._level = _HEADINGS[tag]
        elif tag == "br":
            self._text += "\n"
        elif tag in ("td", "th"):
            self._text += "\t" if self._text.strip() else ""
        elif tag in _BLOCKS:
            self._break("\n" if tag in _LINES else "\n\n")
            self._kept += tag == "pre"
            self._text += "- " if tag == "li" else ""

    def handle_endtag(self, tag: str) -> None:
        """Close an element."""
        if tag in _UNSHOWN and tag in self._hidden:
            while self._hidden.pop() != tag:
                pass
        elif tag in _HEADINGS or tag in _BLOCKS:
            self._break("\n" if tag in _LINES else "\n\n")
            self._kept -= tag == "pre" and self._kept > 0

    def handle_data(self, data: str) -> None:
        """Take text between tags."""
        if not self._hidden:
            data = data if self._kept else _SPACES.sub(" ", data)
            self._text += data.lstrip(" ") if self._text.endswith((" ", "\n")) and not self._kept else data
            if len(self._text) > BLOCK:
                self._break("")

    def _break(self, end: str) -> None:
        text, self._text = self._text, ""
        if self._level is not None:
            self._out += self._sections.heading(self._level, text)
            self._level = None
        elif text.strip() not in ("", "-"):
            self._out += self._sections.paragraph(text if not end or self._kept else text.strip(" \n"), end)


def convert(stream: BinaryIO, name: str, outline: Outline | None = None) -> Iterator[str]:  # noqa: ARG001  as all converters
    """Yield the text of a page, a section at each heading."""
    head = stream.read(BLOCK)
    decoder, page = codecs.getincrementaldecoder(charset(head))("replace"), Page(outline)
    while head:
        yield from page.take(decoder.decode(head))
        head = stream.read(BLOCK)
    yield from page.take(decoder.decode(b"", final=True))
    yield from page.end()


def charset(head: bytes) -> str:
    """Return the encoding that a page's first bytes name, as browsers take it; UTF-8 where they name none."""
    if head.startswith(codecs.BOM_UTF8):
        return "utf-8-sig"
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    if named := _CHARSET.search(head[:4096]):
        word = named[1].decode("ascii", "replace").lower()
        word = "cp1252" if word in ("iso-8859-1", "latin1", "ascii", "us-ascii") else word
        return word if is_charset(word) and not word.startswith("utf-16") else "utf-8"
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head)
    except UnicodeDecodeError:
        return "cp1252"
    return "utf-8"
