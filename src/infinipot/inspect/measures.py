"""Numbers about what was kept, as in section 3.4: of L layers, H heads, T tokens of the text, W words."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from infinipot.reading.recording import Mask, Record

LONGEST = 40  # characters of a word; what has no spaces is cut
EAST = "\u2e80"  # from here on scripts that write no spaces
Floats = npt.NDArray[np.floating[Any]]
Starts = npt.NDArray[np.int64]  # [W] the first token of each word


def top(scores: Floats, counts: npt.NDArray[np.int_]) -> Mask:
    """[L, H, T], true for the `counts` [L, H] highest scores of each head; of equal ones the earliest."""
    order = np.argsort(-scores, axis=-1, kind="stable")
    first = np.arange(scores.shape[-1]) < counts[..., None]
    found: Mask = np.zeros(scores.shape, np.bool_)
    np.put_along_axis(found, order, first, -1)
    return found


def hit_rate(held: Mask, scores: Floats) -> Floats:
    """[L, H]: the share that a head holds of as many tokens with the highest scores (Figure 2, top)."""
    counts = held.sum(-1)
    return np.asarray((held & top(scores, counts)).sum(-1) / np.maximum(1, counts))


def retention(held: Mask, bins: int, tokens: int | None = None) -> Floats:
    """[L, H, bins]: the share of each part of the text, of which `tokens` were read, that a head holds.

    The mean over the heads is Figure 2, bottom.
    """
    length = held.shape[-1]
    starts = bounds(length, bins)
    sizes = np.diff(np.append(starts, length))
    if tokens is not None:
        sizes = np.clip(tokens - starts, 0, sizes)
    sums = np.add.reduceat(held, starts, axis=-1, dtype=np.int64)
    return np.asarray(sums / np.maximum(1, sizes))


def bounds(length: int, bins: int) -> npt.NDArray[np.int_]:
    """Where each of at most `bins` equal parts of `length` tokens begins."""
    return np.unique(np.linspace(0, length, min(bins, length), endpoint=False).astype(np.int64))


def overlap(one: Mask, other: Mask) -> Floats:
    """[L, H]: what two pots hold in common, as a share of what they hold."""
    return np.asarray(2 * (one & other).sum(-1) / np.maximum(1, one.sum(-1) + other.sum(-1)))


def overlaps(one: Record, other: Record, most: int = 64) -> tuple[list[int], Floats]:
    """Tokens read and overlap [n, L, H] at up to `most` cycles that two recordings share (Figure 3, top)."""
    others = {int(tokens): cycle for cycle, tokens in enumerate(other.tokens, 1)}
    common = [(int(t), cycle) for cycle, t in enumerate(one.tokens, 1) if int(t) in others]
    common = [common[place] for place in spread(len(common), most)]
    found = [overlap(one.held(cycle), other.held(others[tokens])) for tokens, cycle in common]
    shape = (0, *one.dropped.shape[:2])
    return [tokens for tokens, _ in common], np.stack(found) if found else np.zeros(shape)


def held_novelty(record: Record, novelty: Floats, cycles: Sequence[int | None]) -> Floats:
    """[n, L, H]: summed novelty of the tokens a head holds after each cycle (Figure 3, bottom)."""
    wide = np.nan_to_num(novelty.astype(np.float64))
    return np.stack([record.held(cycle) @ wide for cycle in cycles])


def global_novelty(novelty: Floats, tokens: int, count: float) -> float:
    """The most that `count` of the first tokens can sum up to: what global scoring would hold."""
    read = np.sort(np.nan_to_num(novelty[:tokens].astype(np.float64)))
    return float(read[max(0, len(read) - round(count)) :].sum())


def spread(count: int, most: int) -> list[int]:
    """At most `most` of `count` places, evenly, both ends among them."""
    places = np.linspace(0, count - 1, min(count, most)) if count else np.zeros(0)
    return [int(place) for place in np.unique(places.round())]


def cycles(record: Record, most: int = 64) -> list[int | None]:
    """At most `most` moments of a recording: after some of its cycles, evenly, and in the end (None)."""
    chosen: list[int | None] = [place + 1 for place in spread(record.cycles, most - 1)]
    if record.cycles and record.seen(record.cycles) == len(record.ids):
        chosen.pop()  # nothing was read after it: that is the end
    return [*chosen, None]


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
