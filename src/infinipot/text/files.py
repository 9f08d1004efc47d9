"""Files and streams to characters: strict UTF-8 or an error that says what to do; nothing altered."""

import codecs
import hashlib
import os
import re
import stat
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from infinipot.common.atomic_files import failing_to
from infinipot.errors import InputError

BLOCK = 65_536  # bytes read from a file at once
READABLE = "give text, Markdown, HTML, PDF, DOCX or EPUB"
_BOM = "\ufeff"
CONTROLS = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f]")  # bytes that no text in any encoding has
_ESCAPES = ("idna", "raw-unicode-escape", "unicode-escape", "utf-7")  # fail, or make halves of characters


def read_text(path: str | os.PathLike[str]) -> Iterator[str]:
    """Yield the text of a file, block by block, unchanged but for a leading BOM."""
    with failing_to(f"read {path}", kind=InputError), Path(path).open("rb") as stream:
        yield from decoded(blocks_of(stream), str(path))


def blocks_of(stream: BinaryIO, head: bytes = b"") -> Iterator[bytes]:
    """Yield the bytes of a stream, of which `head` was read already."""
    yield from [head] if head else []
    while data := stream.read(BLOCK):
        yield data


def decoded(blocks: Iterable[bytes], name: str, encoding: str = "utf-8") -> Iterator[str]:
    """Yield the text of bytes as they come; what is no text is refused by its name."""
    decoder = Decoder(name, encoding)
    for data in blocks:
        yield decoder.push(data)
    decoder.end()


class Piece(str):
    """The first piece of a text that has a name of its own."""

    source = ""


def named(pieces: Iterable[str], source: str) -> Iterator[str]:
    """Yield the pieces of a text, the first of which knows the text's name."""
    for index, piece in enumerate(pieces):
        if index == 0:
            piece = Piece(piece)
            piece.source = source
        yield piece


class Hashed:
    """Passes the pieces of a text on, and knows its digest and its size in bytes at its end."""

    def __init__(self, pieces: Iterable[str]) -> None:
        self._pieces, self.digest, self.bytes = pieces, hashlib.sha256(), 0

    def __iter__(self) -> Iterator[str]:
        for piece in self._pieces:
            data = piece.encode()
            self.digest.update(data)
            self.bytes += len(data)
            yield piece


class Decoder:
    """Text of bytes as they come; what is not plain UTF-8 text with something in it raises InputError.

    Another encoding, which only a server may name, is tried as well as can be.
    """

    def __init__(self, name: str, encoding: str = "utf-8") -> None:
        self._name, self._decoder = name, _decoder(encoding)
        self._offset, self._begun, self._blank = 0, False, True

    def push(self, data: bytes) -> str:
        """Take some bytes; return the characters that are whole."""
        _check_bytes(data, self._offset, self._name)
        text = _decode_block(self._decoder, data, self._offset, self._name)
        self._offset += len(data)
        if text and not self._begun:
            self._begun, text = True, text.removeprefix(_BOM)
        self._blank = self._blank and (not text or text.isspace())
        return text

    def end(self) -> None:
        """Say that there are no more bytes."""
        _decode_block(self._decoder, b"", self._offset, self._name)
        if self._blank:
            raise InputError(f"{self._name} has no text in it")


def check_regular(path: str | os.PathLike[str]) -> None:
    """Refuse a file that is not there, or that can be read only once."""
    try:
        with failing_to(f"read {path}", kind=InputError):
            mode = Path(path).stat().st_mode
    except ValueError as error:
        raise InputError(f"{label(str(path))} is no name of a file", remedy="give a path") from error
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        raise InputError(f"{path} is not a regular file and can be read only once: give it as standard input")


def is_charset(word: str) -> bool:
    """Say whether a word names an encoding in which any bytes can be read as text."""
    try:
        b"x".decode(word)
        return codecs.lookup(word).name not in _ESCAPES
    except (LookupError, ValueError):  # unknown, no encoding of text, or no word
        return False


def _decoder(encoding: str) -> codecs.IncrementalDecoder:
    strict = encoding.lower() in ("utf-8", "utf8", "us-ascii", "ascii") or not is_charset(encoding)
    return codecs.getincrementaldecoder("utf-8" if strict else encoding)("strict" if strict else "replace")


def _check_bytes(data: bytes, offset: int, name: str) -> None:
    if offset == 0 and data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise InputError(f"{name} is UTF-16, not UTF-8: convert it with `iconv -f utf-16 -t utf-8`")
    if (at := data.find(0)) >= 0:
        raise InputError(f"{name} is binary, not text: byte {offset + at} is NUL", remedy=READABLE)


def _decode_block(decoder: codecs.IncrementalDecoder, data: bytes, offset: int, name: str) -> str:
    held = len(decoder.getstate()[0])  # bytes of a character that the last block cut in two
    try:
        return decoder.decode(data, final=not data)
    except UnicodeDecodeError as error:
        at = offset - held + error.start
        if CONTROLS.search(data):
            raise InputError(f"{name} is binary, not text (byte {at})", remedy=READABLE) from error
        raise InputError(
            f"{name} is not UTF-8 (byte {at}): if it is Latin-1, convert it with `iconv -f latin1 -t utf-8`"
        ) from error


def label(text: str, most: int = 256) -> str:
    """Return a text as a name that a terminal shows as it is: one line without control characters."""
    line = " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())
    return line if len(line) <= most else f"{line[: most - 3].rstrip()}..."


def title(name: str) -> str:
    """Return the name of a file or folder without where it lies on this machine; anything else as it is."""
    with suppress(RuntimeError):  # the home of a user who is not there
        path = Path(name).expanduser()
        return path.resolve().name if path.exists() else name
    return name
