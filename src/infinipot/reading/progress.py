"""Where reading stands, and how much of a text was read: for a bar or a page that shows a share of it.

Tokens are counted by the text they spell: a tokenizer takes text far ahead of the tokens it gives out.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from infinipot.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class Progress:
    """Where reading stands."""

    tokens_read: int
    cycles: int
    fill: int
    capacity: int | None  # None where nothing bounds the fill
    seconds: float


class TextProgress:
    """A text on its way to a reader: `reader.reading_tokens(text.tokens())`, and how much of it was read.

    The amount, in what `size` counts, never falls, and is the whole text only when all its tokens were read.
    """

    def __init__(self, tokenizer: Tokenizer, pieces: Iterable[str], size: Callable[[str], int] = len) -> None:
        self._tokenizer, self._pieces, self._size = tokenizer, pieces, size
        self._taken = 0  # of the text, by the tokenizer
        self._parts: deque[tuple[int, int]] = deque()  # tokens given out and not all read, and their text
        self._past = (0, 0)  # the same of all parts that were read
        self._best, self._ended = 0, False

    def tokens(self) -> Iterator[list[int]]:
        """Yield the tokens of the text, part by part."""
        for ids in self._tokenizer.encode_stream(self._taking()):
            self._parts.append((len(ids), self._size(self._tokenizer.decode(ids))))
            yield ids
        self._ended = True

    def read(self, tokens: int) -> int:
        """Return how much of the text the first `tokens` of its tokens are."""
        while self._parts and tokens >= self._past[0] + self._parts[0][0]:
            count, text = self._parts.popleft()
            self._past = (self._past[0] + count, self._past[1] + text)
        if self._ended and not self._parts:
            return self._taken
        count, text = self._parts[0] if self._parts else (1, 0)
        read = self._past[1] + text * (tokens - self._past[0]) // max(1, count)
        self._best = max(self._best, min(read, self._taken - 1))
        return self._best

    def _taking(self) -> Iterator[str]:
        for piece in self._pieces:
            self._taken += self._size(piece)
            yield piece
