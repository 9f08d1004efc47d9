"""What a file is, by its first bytes and its name; what cannot be read is refused by its own name."""

import codecs
from pathlib import PurePosixPath
from typing import Literal

from infinipot.errors import InputError
from infinipot.text.files import CONTROLS, READABLE

Kind = Literal["text", "markdown", "html", "pdf", "zip"]
CONVERTED: tuple[Kind, ...] = ("html", "pdf", "zip")  # to be made text first; the others are text
HEAD = 1024  # bytes that tell what a file is

_SUFFIXES: dict[str, Kind] = {
    **dict.fromkeys((".md", ".markdown"), "markdown"),
    **dict.fromkeys((".html", ".htm", ".xhtml"), "html"),
    ".pdf": "pdf",
    **dict.fromkeys((".docx", ".epub"), "zip"),
}
_PICTURE = "make its words text first (OCR)"
_PACKED = "unpack it first"
_OFFICE = "save it as DOCX or PDF, without a password"
_SOUND = "write down what is said first"
_REFUSED = (  # first bytes, what has them, what to do
    (b"\x89PNG", "a picture (PNG)", _PICTURE),
    (b"\xff\xd8\xff", "a picture (JPEG)", _PICTURE),
    (b"GIF8", "a picture (GIF)", _PICTURE),
    (b"II*\0", "a picture (TIFF)", _PICTURE),
    (b"MM\0*", "a picture (TIFF)", _PICTURE),
    (b"\x1f\x8b", "compressed (gzip)", _PACKED),
    (b"BZh", "compressed (bzip2)", _PACKED),
    (b"\xfd7zXZ", "compressed (xz)", _PACKED),
    (b"\x28\xb5\x2f\xfd", "compressed (zstd)", _PACKED),
    (b"7z\xbc\xaf", "an archive (7z)", _PACKED),
    (b"Rar!", "an archive (RAR)", _PACKED),
    (b"\xd0\xcf\x11\xe0", "an old Office file, or one with a password", _OFFICE),
    (b"{\\rtf", "rich text (RTF)", "save it as DOCX or PDF"),
    (b"%!PS", "PostScript", "save it as PDF"),
    (b"ID3", "a sound (MP3)", _SOUND),
    (b"RIFF", "a picture, sound or film (RIFF)", READABLE),
    (b"\x7fELF", "a program", READABLE),
    (b"MZ\x90", "a program", READABLE),
    (b"SQLite format 3\0", "a database (SQLite)", READABLE),
)
_LETTERS = (b"GIF8", b"BZh", b"Rar!", b"ID3", b"RIFF")  # that a text may begin with too


def kind_of(head: bytes, name: str, mime: str = "") -> Kind:
    """Return what a file is that begins with these bytes; `mime` is what a server says of it."""
    for begin, what, remedy in _REFUSED:
        if head.startswith(begin) and (begin not in _LETTERS or CONTROLS.search(head)):
            raise InputError(f"{name} is {what}", remedy=remedy)
    if head[4:8] == b"ftyp" and CONTROLS.search(head):
        raise InputError(f"{name} is a film or sound (MP4)", remedy=_SOUND)
    meant = _SUFFIXES.get(PurePosixPath(name.rstrip("/")).suffix.lower(), "text")
    told = meant == "pdf" or mime == "application/pdf"  # or it is no text: something may stand before a PDF
    if _begin(head).startswith(b"%PDF-") or (b"%PDF-" in head and (told or not _is_text(head))):
        return "pdf"
    if head.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        return "zip"
    if meant in ("pdf", "zip"):
        ending = PurePosixPath(name).suffix[1:].upper()
        raise InputError(f"{name} is no {ending}, or a damaged one", remedy="open it and save it again")
    page = not mime and _begin(head)[:15].lower().startswith((b"<!doctype html", b"<html"))
    if meant == "text" and (page or mime in ("text/html", "application/xhtml+xml")):
        return "html"
    return "markdown" if meant == "text" and mime == "text/markdown" else meant


def kind_of_upload(head: bytes, name: str, mime: str, title: str) -> Kind:
    """Return what an upload is; its title's ending tells a page of the web, or Markdown, from other text."""
    found = kind_of(head, name, "" if mime == "application/octet-stream" else mime)
    meant = _SUFFIXES.get(PurePosixPath(title).suffix.lower(), "text")
    return meant if found == "text" and meant in ("html", "markdown") else found


def _is_text(head: bytes) -> bool:
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head)
    except UnicodeDecodeError:
        return False
    return not CONTROLS.search(head)


def _begin(head: bytes) -> bytes:
    return head.removeprefix(codecs.BOM_UTF8).lstrip()
