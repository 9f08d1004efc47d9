"""What all converters share: text that a terminal can show, and the names of chapters and sections."""

import re
from collections.abc import Iterable, Iterator

from infinipot.text.files import Piece, label, named

_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ufeff\ufffe\uffff]")
_BROKEN = re.compile("[\ud800-\udfff]")
LOWEST = 10  # level of a name that any heading replaces
NAME = 60  # characters of a heading in the name of a section
PIECE = 8192  # characters from which on a piece of a section is given out


class Note(str):
    """What a person must know of a document's conversion; no part of its text."""

    __slots__ = ()


def clean(text: str) -> str:
    """Return a text without control characters, lone surrogates and Windows' line ends."""
    return _BROKEN.sub("\ufffd", _CONTROLS.sub("", text.replace("\r\n", "\n").replace("\r", "\n")))


class Outline:
    """The headings that stand above a place in a text."""

    def __init__(self, top: str = "", level: int = 0) -> None:
        self._above: list[tuple[int, str]] = [(level, label(top, NAME))] if top else []

    def enter(self, level: int, heading: str) -> str:
        """Go on below a heading of a level, 1 the highest; return the name of the section that begins."""
        self._above = [(above, name) for above, name in self._above if above < level]
        if (name := label(heading, NAME)) and name not in (known for _, known in self._above):
            self._above.append((level, name))
        return self.name

    @property
    def name(self) -> str:
        """The name of the section: its headings, the highest first."""
        return " > ".join(name for _, name in self._above)


class Sections:
    """Text that comes as paragraphs and headings, given out as pieces; each section begins a named one.

    A heading right after another one, without text between them, begins no section of its own, up to a
    piece of headings.
    """

    def __init__(self, outline: Outline | None = None) -> None:
        self._outline = outline or Outline()
        self._waiting, self._name = "", self._outline.name
        self._new, self._bare = True, True  # nothing of the section was given out; it has headings alone

    def heading(self, level: int, text: str) -> Iterator[str]:
        """Begin a section; yield what is left of the one before."""
        if text := " ".join(clean(text).split()).rstrip("¶ "):  # a sign that links to itself
            yield from self.begin(level, text, f"{text}\n\n")

    def paragraph(self, text: str, end: str = "\n\n") -> Iterator[str]:
        """Take a paragraph; yield pieces that are whole."""
        if (text := clean(text)).strip():
            yield from self.add(text + end)

    def begin(self, level: int, name: str, text: str) -> Iterator[str]:
        """Begin a section with its heading as it stands in the text; yield what is left of the one before."""
        if not self._bare or len(self._waiting) > PIECE:
            yield from self.flush()
            self._new = self._bare = True
        self._name = self._outline.enter(level, name)
        self._waiting += text

    def add(self, text: str) -> Iterator[str]:
        """Take text as it is; yield pieces that are whole."""
        self._bare = self._bare and not text.strip()
        self._waiting += text
        if len(self._waiting) > PIECE:
            self._bare = False
            yield from self.flush()

    def flush(self) -> Iterator[str]:
        """Yield what is left."""
        waiting, self._waiting = self._waiting, ""
        if waiting:
            yield from named([waiting], self._name) if self._new else [waiting]
            self._new = False


def placed(pieces: Iterable[str], document: str, lead: str = "") -> Iterator[str]:
    """Yield the pieces of a document; the name of each part has the document's in front.

    `lead` is written before the first piece, such as the document's name where several are read.
    """
    first = True
    for piece in pieces:
        inner = piece.source if isinstance(piece, Piece) else None
        whole = lead + piece if first else piece
        if first or inner is not None:
            yield from named([whole], f"{document}, {inner}" if inner else document)
        else:
            yield whole
        first = False
