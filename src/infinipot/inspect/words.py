"""Words of a recorded text, and how many heads hold them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from infinipot.inspect.measures import Floats
from infinipot.reading.recording import Mask

LONGEST = 40  # characters; what has no spaces is cut
EAST = "\u2e80"  # from here on scripts that write no spaces

Starts = npt.NDArray[np.int64]


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
    sizes = np.diff(np.append(starts, held.shape[-1]))
    return np.asarray(np.add.reduceat(held.mean((0, 1)), starts) / sizes)


def novelties(novelty: Floats, starts: Starts) -> Floats:
    """[W]: the novelty of each word's most novel token."""
    return np.asarray(np.maximum.reduceat(np.nan_to_num(novelty.astype(np.float32)), starts))
