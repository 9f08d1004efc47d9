"""DOCX to text as a stream of XML events: paragraphs, tables and notes, in sections by their headings."""

import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Mapping
from typing import Any

from infinipot.errors import InputError
from infinipot.text.convert.outline import Outline, Sections
from infinipot.text.convert.zipped import Zip
from infinipot.text.files import BLOCK

_W = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_STRICT = "{http://purl.oclc.org/ooxml/wordprocessingml/main}"  # the same, in files of the strict kind
_FALLBACK = "{http://schemas.openxmlformats.org/markup-compatibility/2006}Fallback"  # says everything twice
_NOTES = ("word/footnotes.xml", "word/endnotes.xml")
_HEADING = re.compile(r"heading\s*([1-9])", re.IGNORECASE)


class _DoctypeError(Exception):
    """The XML declares entities, which no word processor writes."""


class Target:
    """Takes the events of an XML file that has no document type."""

    def doctype(self, *_: Any) -> None:
        """Refuse entities before they are expanded."""
        raise _DoctypeError

    def close(self) -> None:
        """End the file; the parser asks for this method."""


class Styles(Target):
    """Which styles of paragraphs are headings, and of which level; by name, since ids are translated."""

    def __init__(self) -> None:
        self.levels: dict[str, int] = {}
        self._id = ""

    def start(self, tag: str, attributes: Mapping[str, str]) -> None:
        """Open an element."""
        tag, value = tag.rpartition("}")[2], _values(attributes)
        if tag == "style":
            self._id = value.get("styleId", "")
        elif tag == "name" and (found := _HEADING.fullmatch(value.get("val", ""))):
            self.levels[self._id] = int(found[1])
        elif tag == "name" and value.get("val", "").lower() == "title":
            self.levels[self._id] = 1


class Body(Target):
    """The text of a document's paragraphs, as events come."""

    def __init__(self, levels: Mapping[str, int], sections: Sections) -> None:
        self.out: list[str] = []
        self._levels, self._sections = levels, sections
        self._text, self._level, self._unread, self._taking = "", 0, 0, False
        self._rows: list[list[str]] = []  # cells of the rows that are open, one row in another

    def start(self, tag: str, attributes: Mapping[str, str]) -> None:
        """Open an element."""
        self._unread += tag == _FALLBACK or self._unread > 0
        if self._unread:
            return
        tag, value = _own(tag), _values(attributes)
        self._taking = tag == "t"
        if tag == "pStyle":
            self._level = self._levels.get(value.get("val", ""), 0)
        elif tag == "outlineLvl" and value.get("val", "9").isdigit() and int(value["val"]) < 9:
            self._level = int(value["val"]) + 1
        elif tag in ("tab", "br", "cr", "noBreakHyphen"):
            self._text += {"tab": "\t", "noBreakHyphen": "-"}.get(tag, "\n")
        elif tag == "tr":
            self._rows.append([])
        elif tag == "tc" and self._rows:
            self._rows[-1].append("")

    def data(self, text: str) -> None:
        """Take the text of a run; what was deleted stands in other elements."""
        if self._taking and not self._unread:
            self._text += text

    def end(self, tag: str) -> None:
        """Close an element."""
        self._taking = False
        if self._unread:
            self._unread -= 1
            return
        tag = _own(tag)
        if tag == "p":
            text, level, self._text, self._level = self._text, self._level, "", 0
            if self._rows and self._rows[-1]:
                cell = self._rows[-1][-1]
                self._rows[-1][-1] = f"{cell} {text}".strip()
            else:
                self.out += self._sections.heading(level, text) if level else self._sections.paragraph(text)
        elif tag == "tr" and self._rows:
            row = "\t".join(self._rows.pop())
            if self._rows and self._rows[-1]:  # a table in a cell
                self._rows[-1][-1] += f" {row}"
            else:
                self.out += self._sections.paragraph(row, "\n")


def convert(document: Zip) -> Iterator[str]:
    """Yield the text of a DOCX file, then that of its notes."""
    styles = Styles()
    if "word/styles.xml" in document.names:
        for _ in _parsed(document, "word/styles.xml", styles):
            pass
    for member in ("word/document.xml", *(one for one in _NOTES if one in document.names)):
        sections = Sections(Outline(member[5:-4] if member in _NOTES else ""))
        body = Body(styles.levels, sections)
        for _ in _parsed(document, member, body):
            out, body.out = body.out, []
            yield from out
        yield from [*body.out, *sections.flush()]


def _parsed(document: Zip, member: str, target: Target) -> Iterator[None]:
    """Feed a member to a target, block by block."""
    parser = ET.XMLParser(target=target)  # noqa: S314  a document type, which entities need, is refused
    try:
        with document.opened(member) as stream:
            while data := stream.read(BLOCK):
                parser.feed(data)
                yield
            parser.close()
    except (ET.ParseError, _DoctypeError) as error:
        why = "it declares entities" if isinstance(error, _DoctypeError) else str(error)
        problem = f"{document.document} is damaged ({member}: {why})"
        raise InputError(problem, remedy="save it again") from error


def _own(tag: str) -> str:
    """Return the name of a word processor's element; empty for elements of others, such as drawings."""
    space, _, name = tag.rpartition("}")
    return name if f"{space}}}" in (_W, _STRICT) else ""


def _values(attributes: Mapping[str, str]) -> dict[str, str]:
    return {name.rpartition("}")[2]: value for name, value in attributes.items()}
