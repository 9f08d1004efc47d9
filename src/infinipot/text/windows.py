"""Tokenising a text of any length in bounded memory, with exactly the ids of the whole."""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence

Encoded = tuple[list[int], list[tuple[int, int]]]  # ids and, for each, the [start, end) of its characters
WINDOW = 8_192  # characters tokenised at once: some 2,000 tokens, while a card reads the 2,000 before them
_AGREE = 8  # tokens that must be the same in two windows before one takes over from the other


def encode_windows(
    encode: Callable[[str], Encoded], pieces: Iterable[str], window: int = WINDOW, *, at_words: bool = False
) -> Iterator[list[int]]:
    """Yield the ids of the joined pieces, encoding only about `window` characters at a time.

    A window's last tokens may be wrong for want of what follows, the next one's first tokens for want of what
    came before; so windows overlap, and the next takes over amid a run of tokens on which both agree. For BPE
    that is exact: an encoding is right when each neighbouring pair is, and every pair here stood in one
    window. Without such a run both become one window. A tokenizer that weighs whole words (Unigram) needs
    `at_words`: to take over between words only.
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

    So both windows stay in step in runs of digits or spaces, which are cut into equal lengths.
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
