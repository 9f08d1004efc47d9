"""Words of a recorded text, and how many heads hold them (Table 8)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from infinipot.inspect.measures import Floats
from infinipot.reading.recording import Mask, Record

LONGEST = 40  # characters; what has no spaces is cut
EAST = "\u2e80"  # from here on scripts that write no spaces

Starts = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Held:
    """A word, and the share of all layers and heads that hold it in each of several pots."""

    text: str
    start: int  # its first token
    shares: tuple[float, ...]


def words(pieces: Sequence[str]) -> Starts:
    """[W]: the first token of each word. A word ends before a space, and in scripts without any anywhere."""
    starts, length = [0] if pieces else [], 0
    for place, piece in enumerate(pieces):
        first = piece[:1]
        cut = first.isspace() or first >= EAST or length + len(piece) > LONGEST
        if length and cut:
            starts.append(place)
            length = 0
        length += len(piece)
    return np.array(starts, np.int64)


def texts(pieces: Sequence[str], starts: Starts) -> list[str]:
    """The text of each word."""
    return ["".join(pieces[a:b]) for a, b in pairwise([*starts.tolist(), len(pieces)])]


def shares(held: Mask, starts: Starts) -> Floats:
    """[W]: the share of layers and heads that hold a word, as the mean over its tokens."""
    return np.asarray(_means(held.mean((0, 1)), starts, held.shape[-1]))


def novelties(novelty: Floats, starts: Starts) -> Floats:
    """[W]: the novelty of each word's most novel token."""
    return np.asarray(np.maximum.reduceat(np.nan_to_num(novelty.astype(np.float32)), starts))


def find(pieces: Sequence[str], phrase: str, spoken: bool = False) -> list[tuple[int, int]]:
    """Every place where the text says the phrase, as first token and the one after the last.

    With `spoken`, whole words only, in capitals or not.
    """
    if not phrase:
        return []
    pattern = rf"(?<!\w){re.escape(phrase)}(?!\w)" if spoken else re.escape(phrase)
    ends = np.cumsum([len(piece) for piece in pieces])
    found = []
    for match in re.finditer(pattern, "".join(pieces), re.IGNORECASE if spoken else re.NOFLAG):
        first = int(np.searchsorted(ends, match.start(), side="right"))
        last = int(np.searchsorted(ends, match.end(), side="left"))
        found.append((first, last + 1))
    return found


def side_by_side(records: Sequence[Record], start: int = 0, end: int | None = None) -> list[Held]:
    """Words of the tokens `start` to `end`, with the share of heads that hold them in the end."""
    pieces = records[0].pieces[start:end]
    starts = words(pieces)
    found = [shares(record.held()[..., start:end], starts) for record in records]
    rows = zip(texts(pieces, starts), starts.tolist(), *(one.tolist() for one in found), strict=True)
    return [Held(text, start + first, tuple(rest)) for text, first, *rest in rows]


def _means(values: Floats, starts: Starts, length: int) -> Floats:
    sizes = np.diff(np.append(starts, length))
    return np.asarray(np.add.reduceat(values, starts) / sizes)
