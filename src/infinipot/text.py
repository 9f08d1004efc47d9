"""Text on its way in and out: files to characters, windows to ids, ids to characters.

Everything here streams in bounded memory and alters nothing: what goes in is what is read.
This module does not know any tokenizer, model or tensor; `infinipot.hf.tokenizer` and
`infinipot.testing` bring those. It does not guess encodings either: text is UTF-8 or an error.
"""

from __future__ import annotations

import codecs
import os
import stat
from bisect import bisect_left
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
        if text.endswith(_UNFINISHED):
            return self._give(text[:-1])
        new = self._give(text)
        self._settle(token, text)
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

    def _settle(self, token: int, text: str) -> None:
        """Forget the pending ids, whose text is whole, once there is an anchor to go on from."""
        alone = self._decode([token])
        if alone and _UNFINISHED not in alone:
            self._anchor, self._skip = [token], len(alone)
        elif text and not self._anchor:
            self._anchor, self._skip = self._pending, len(text)
        if self._anchor:
            self._pending, self._given = [], 0

    def _boundary(self) -> int:
        """Where the pending ids come apart with the fewest broken characters."""
        ids, count = self._pending, len(self._pending)

        def broken(k: int) -> int:
            return (self._text(ids[:k]) + self._text(ids[k:])).count(_UNFINISHED)

        return min(range(count // 2, count + 1), key=broken)

    def _shorten(self, count: int) -> str:
        text = self._text(self._pending[:count])
        new, self._given = text[self._given :], max(0, self._given - len(text))
        del self._pending[:count]
        return new


def encode_windows(
    encode: Callable[[str], Encoded], pieces: Iterable[str], window: int = WINDOW, *, at_words: bool = False
) -> Iterator[list[int]]:
    """Yield the ids of the joined pieces, encoding only about `window` characters at a time.

    A window's last tokens may be wrong for want of what follows, the next one's first tokens for
    want of what came before; so windows overlap, and the next takes over amid a run of tokens on
    which both agree. For BPE that is exact: an encoding is right when each neighbouring pair is,
    and every pair here stood in one of the windows. Without such a run both become one window.
    A tokenizer that weighs whole words (Unigram) needs `at_words`: to take over between words only.
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
        left, right, run = _agreement((ids, spans), first, (new_ids, new_spans)) if first else (0, 0, 0)
        half = _seam(spans[left : left + run], text if at_words else "")
        misses = 0 if half else misses + 1
        if half:
            assert left + half > done  # an overlap is at most a third of its window
            yield ids[done : left + half]
            done = right + half
        elif start:
            joined = text + more
            new_ids, new_spans = encode(joined)
        text, ids, spans = joined, new_ids, new_spans
    if ids[done:]:
        yield ids[done:]


def _restart(spans: Sequence[tuple[int, int]], near: int) -> int:
    """The token at which the next window starts, near the given character; 0 if there is none.

    Starting where a token started keeps both windows in step in runs of digits or spaces, which are
    cut into equal lengths from wherever they begin.
    """
    first = max(1, bisect_left(spans, (near, 0)))
    return first if first < len(spans) else 0


def _agreement(old: Encoded, first: int, new: Encoded) -> tuple[int, int, int]:
    """Return the longest run of tokens common to both windows: its index in each, its length."""
    (old_ids, old_spans), (new_ids, new_spans) = old, new
    shift = old_spans[first][0]
    i, j, run, best = first, 0, 0, (0, 0, 0)
    while i < len(old_ids) and j < len(new_ids):
        here, there = (old_spans[i][0] - shift, old_spans[i][1] - shift), new_spans[j]
        run = run + 1 if here == there and old_ids[i] == new_ids[j] else 0
        # Out of step, only the one behind goes on, so that the two meet again.
        i, j = i + (here <= there), j + (there <= here)
        if run > best[2]:
            best = (i - run, j - run, run)
    return best


def _seam(run: Sequence[tuple[int, int]], words: str) -> int:
    """How far into a run of agreeing tokens one window hands over, as near its middle as can be; or 0."""
    inner = range(_AGREE // 2, len(run) - _AGREE // 2 + 1)
    for k in sorted(inner, key=lambda k: abs(k - len(run) // 2)):
        start = run[k][0]
        if not words or (words[start].isspace() and not words[start - 1].isspace()):
            return k
    return 0


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
