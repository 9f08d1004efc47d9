"""Text on its way in and out: files to characters, windows to ids, ids to characters.

Everything here streams in bounded memory and alters nothing: what goes in is what is read.
This module does not know any tokenizer, model or tensor; `infinipot.hf.tokenizer` and
`infinipot.testing` bring those. It does not guess encodings either: text is UTF-8 or an error.
"""

from __future__ import annotations

import codecs
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Literal, Protocol

from infinipot.errors import InputError

Format = Literal["chat", "plain"]
Source = str | os.PathLike[str] | BinaryIO
Encoded = tuple[list[int], list[tuple[int, int]]]
"""Ids and, for each, the [start, end) of the characters it came from."""

BLOCK = 65_536
"""Bytes read from a file at once."""

WINDOW = 32_768
"""Characters tokenised at once; larger windows are not faster, only larger."""

CHAT_ASK_BEFORE = "\n\n"
PLAIN_ASK_BEFORE = "\n"
PLAIN_ASK_AFTER = ""
PLAIN_TURN_BEFORE = "\n\n"
PLAIN_TURN_AFTER = "\n"

_BOM = "\ufeff"
_UNFINISHED = "\ufffd"
_HOLD = 64  # tokens a Detokenizer keeps back at most
_AGREE = 8  # tokens that must be the same in two windows before one takes over from the other


@dataclass(frozen=True)
class Frame:
    """The ids around the texts of a conversation: opening, document, ask, answer, turn, answer, ..."""

    opening: tuple[int, ...] = ()
    """Before the document."""
    ask_before: tuple[int, ...] = ()
    """Between the document and the first question."""
    ask_after: tuple[int, ...] = ()
    """After the first question, up to where the answer starts."""
    turn_before: tuple[int, ...] = ()
    """Between an answer (its stop token not yet fed) and the next question."""
    turn_after: tuple[int, ...] = ()
    """After each further question, up to where the answer starts."""
    stop_strings: tuple[str, ...] = ()
    """Texts that end an answer where the format has no token for it."""


class Tokenizer(Protocol):
    """What the rest of the project may ask of a tokenizer."""

    @property
    def stop_ids(self) -> frozenset[int]:
        """Ids that end an answer."""
        ...

    def encode(self, text: str) -> list[int]:
        """Ids of the text alone; no text can yield a control token."""
        ...

    def encode_stream(self, pieces: Iterable[str]) -> Iterator[list[int]]:
        """The ids of `encode("".join(pieces))`, part by part, in bounded memory."""
        ...

    def decode(self, ids: Sequence[int]) -> str:
        """The text of the ids."""
        ...

    def frame(self, format: Literal["chat", "plain"]) -> Frame:
        """The ids that go around document, questions and answers."""
        ...


class Detokenizer:
    """Text of ids that arrive one by one; all it returns, joined, is `decode` of all ids.

    A token is decoded after one earlier token, the anchor, because some tokenizers drop the
    space in front of a text's first word; so the cost of a token does not grow with the answer.
    Held back are an unfinished character, and runs of SentencePiece byte tokens
    (`byte_fallback_ids`, which a tokenizer may declare): those are decoded as one, so a later
    byte can undo earlier ones. Past `_HOLD` tokens such a run is given out as it stands.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._decode = tokenizer.decode
        self._joint: frozenset[int] = getattr(tokenizer, "byte_fallback_ids", frozenset())
        self._reset()

    def _reset(self) -> None:
        self._anchor: list[int] = []
        self._skip = 0  # characters of the anchor
        self._pending: list[int] = []
        self._given = 0  # characters of the pending ids already returned

    def push(self, token: int) -> str:
        """Take one id; return the text that no later id can change."""
        self._pending.append(token)
        if len(self._pending) >= _HOLD:
            return self._shorten(self._boundary())
        if token in self._joint:
            return ""
        text = self._text(self._pending)
        whole = not text.endswith(_UNFINISHED)
        new = self._give(text if whole else text[:-1])
        if whole and self._settle(token):
            self._pending, self._given = [], 0
        return new

    def flush(self) -> str:
        """Return what was held back, and start anew."""
        rest = self._text(self._pending)[self._given :]
        self._reset()
        return rest

    def _text(self, ids: Sequence[int]) -> str:
        return self._decode([*self._anchor, *ids])[self._skip :] if ids else ""

    def _give(self, text: str) -> str:
        new, self._given = text[self._given :], max(self._given, len(text))
        return new

    def _settle(self, token: int) -> bool:
        """Make the token the anchor if its own text is sound; say whether there is an anchor."""
        text = self._decode([token])
        if text and _UNFINISHED not in text:
            self._anchor, self._skip = [token], len(text)
        return bool(self._anchor)

    def _boundary(self) -> int:
        """How many pending ids can be let go: up to a whole character, or where decoding splits."""
        ids, count = self._pending, len(self._pending)
        for k in range(count, count - 5, -1):
            if not self._text(ids[:k]).endswith(_UNFINISHED):
                return k
        for k in range(count - 1, count - 5, -1):
            if self._text(ids[:k]) + self._text(ids[k:]) == self._text(ids):
                return k
        return count

    def _shorten(self, count: int) -> str:
        text = self._text(self._pending[:count])
        new, self._given = text[self._given :], max(0, self._given - len(text))
        del self._pending[:count]
        return new


def encode_windows(
    encode: Callable[[str], Encoded], pieces: Iterable[str], window: int = WINDOW
) -> Iterator[list[int]]:
    """Yield the ids of the joined pieces, encoding only about `window` characters at a time.

    A window's last tokens may be wrong for want of what follows, the next one's first tokens for
    want of what came before; so windows overlap, and the next takes over amid a run of tokens on
    which both agree. For BPE that is exact: an encoding is right when each neighbouring pair is,
    and every pair here stood in one of the windows. Without such a run both become one window.
    """
    blocks, overlap = _Blocks(pieces), max(window // 16, min(window // 2, 64))
    text = blocks.take(window)
    ids, spans = encode(text) if text else ([], [])
    done = misses = 0  # tokens of this window already given out; windows joined in a row
    while more := blocks.take(len(text) if misses else window):
        first = _restart(spans, len(text) - (overlap << misses))
        start = spans[first][0] if first else 0
        joined = text[start:] + more
        new_ids, new_spans = encode(joined)
        left, right = _seam((ids, spans), first, (new_ids, new_spans)) if first else (0, 0)
        misses = 0 if left > done else misses + 1
        if left > done:
            yield ids[done:left]
            done = right
        elif start:
            joined = text + more
            new_ids, new_spans = encode(joined)
        text, ids, spans = joined, new_ids, new_spans
    if ids[done:]:
        yield ids[done:]


def _restart(spans: Sequence[tuple[int, int]], near: int) -> int:
    """The first token at or after character `near` that starts a character; 0 if there is none.

    Starting the next window where a token started keeps both in step in runs of digits or spaces,
    which are cut into equal lengths from wherever they begin.
    """
    first = len(spans)
    while first and spans[first - 1][0] >= near:
        first -= 1
    for i in range(max(first, 1), len(spans)):
        if spans[i - 1][1] <= spans[i][0]:
            return i
    return 0


def _seam(old: Encoded, first: int, new: Encoded) -> tuple[int, int]:
    """The middle of the longest run on which both windows agree, as an index into each; or (0, 0)."""
    (old_ids, old_spans), (new_ids, new_spans) = old, new
    shift = old_spans[first][0]
    best, run, seam = max(_AGREE, (len(old_ids) - first) // 4) - 1, 0, (0, 0)
    i, j = first, 0
    while i < len(old_ids) and j < len(new_ids):
        here, there = (old_spans[i][0] - shift, old_spans[i][1] - shift), new_spans[j]
        run = run + 1 if here == there and old_ids[i] == new_ids[j] else 0
        # Out of step, only the one behind goes on, so that the two meet again.
        i, j = i + (here <= there), j + (there <= here)
        if run > best:
            best, seam = run, (i - run // 2, j - run // 2)
    return seam


class _Blocks:
    """Pieces of any size, taken in blocks of a wanted size."""

    def __init__(self, pieces: Iterable[str]) -> None:
        self._pieces = filter(None, pieces)
        self._piece, self._at = "", 0

    def take(self, size: int) -> str:
        """Return the next `size` characters, fewer only at the end."""
        parts: list[str] = []
        while size:
            if self._at == len(self._piece):
                self._piece, self._at = next(self._pieces, ""), 0
                if not self._piece:
                    break
            part = self._piece[self._at : self._at + size]
            self._at, size = self._at + len(part), size - len(part)
            parts.append(part)
        return "".join(parts)


def read_text(source: Source) -> Iterator[str]:
    """Yield the text of a file or binary stream, block by block, unchanged but for a leading BOM.

    Whatever is not plain UTF-8 text with something in it raises InputError, at the latest at its end.
    """
    name = str(source) if isinstance(source, (str, os.PathLike)) else "standard input"
    blank = True
    try:
        with _open(source) as stream:
            for block in _decoded(stream, name):
                blank = blank and (not block or block.isspace())
                yield block
    except OSError as error:
        raise InputError(f"cannot read {name}: {_reason(error)}") from error
    if blank:
        raise InputError(f"{name} has no text in it")


def check_text(path: str | os.PathLike[str]) -> int:
    """Read a file once for all errors `read_text` can raise; return its number of characters."""
    try:
        mode = Path(path).stat().st_mode
    except OSError as error:
        raise InputError(f"cannot read {path}: {_reason(error)}") from error
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        raise InputError(f"{path} is not a regular file and can be read only once: give it as standard input")
    return sum(map(len, read_text(path)))


def _open(source: Source) -> AbstractContextManager[BinaryIO]:
    return Path(source).open("rb") if isinstance(source, (str, os.PathLike)) else nullcontext(source)


def _decoded(stream: BinaryIO, name: str) -> Iterator[str]:
    decoder = codecs.getincrementaldecoder("utf-8")()
    offset = 0
    while data := stream.read(BLOCK):
        _check_bytes(data, offset, name)
        text = _decode_block(decoder, data, offset, name)
        yield text.removeprefix(_BOM) if offset == 0 else text
        offset += len(data)
    _decode_block(decoder, b"", offset, name)


def _check_bytes(data: bytes, offset: int, name: str) -> None:
    if offset == 0 and data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise InputError(f"{name} is UTF-16, not UTF-8: convert it with `iconv -f utf-16 -t utf-8`")
    if (at := data.find(0)) >= 0:
        raise InputError(f"{name} is binary, not text: byte {offset + at} is NUL")


def _decode_block(decoder: codecs.IncrementalDecoder, data: bytes, offset: int, name: str) -> str:
    held = len(decoder.getstate()[0])  # bytes of a character that the last block cut in two
    try:
        return decoder.decode(data, final=not data)
    except UnicodeDecodeError as error:
        at = offset - held + error.start
        raise InputError(
            f"{name} is not UTF-8 (byte {at}): if it is Latin-1, convert it with `iconv -f latin1 -t utf-8`"
        ) from error


def _reason(error: OSError) -> str:
    if isinstance(error, FileNotFoundError):
        return "there is no such file"
    if isinstance(error, IsADirectoryError):
        return "it is a directory"
    return (error.strerror or str(error)).lower()
