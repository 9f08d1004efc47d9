"""Where the time of a steady cycle goes: the pot holds what was kept, and a whole chunk arrives.

The same text tokens are written three times over: with everything; without
catalyst, scores, selection, gather and re-rotation; and without novelty too.
Rounds alternate, so that a noisy machine hurts all alike; what puts the pot
back is not timed.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from infinipot.reading.plan import BLOCK
from infinipot.reading.reader import Reader
from speed.ceilings import seconds

VARIANTS = {
    "complete": {"distil": True, "scored": True},
    "undistilled": {"distil": False, "scored": True},
    "forward": {"distil": False, "scored": False},
}
WARM = 3  # of each variant before it is timed: seen, captured, replayed; once where nothing is captured


@dataclass(frozen=True)
class Parts:
    """Medians of one cycle's variants, in milliseconds."""

    tokens: int  # of text in a cycle
    catalyst: int  # more tokens, in the complete variant alone
    complete_ms: float
    undistilled_ms: float
    forward_ms: float
    rounds: tuple[dict[str, float], ...] = ()

    @property
    def distillation(self) -> float:
        """Share of a cycle that the catalyst, scores, selection, gather and re-rotation take."""
        return (self.complete_ms - self.undistilled_ms) / self.complete_ms

    @property
    def novelty(self) -> float:
        """Share of a cycle that novelty takes, or whatever else is taken down of every token."""
        return (self.undistilled_ms - self.forward_ms) / self.complete_ms

    def describe(self) -> dict[str, Any]:
        """Return the parts as JSON-ready data."""
        return {
            "text_tokens": self.tokens,
            "catalyst_tokens": self.catalyst,
            "complete_ms": round(self.complete_ms, 4),
            "undistilled_ms": round(self.undistilled_ms, 4),
            "forward_ms": round(self.forward_ms, 4),
            "distillation_share": round(self.distillation, 5),
            "novelty_share": round(self.novelty, 5),
            "forward_share": round(self.forward_ms / self.complete_ms, 5),
            "rounds_ms": [{name: round(ms, 4) for name, ms in turn.items()} for turn in self.rounds],
        }


def cycle_parts(reader: Reader, ids: list[int], rounds: int) -> Generator[str, None, Parts]:
    """Time the variants of a steady cycle, yielding before every round; the reader forgets what it read."""
    chunk = reader.config.chunk(len(reader.session.catalyst))
    again = steady(reader, ids)
    reader.pot.lengths |= {chunk}  # as often as the complete cycle's: compiled like it
    warm = 1 if reader.session.capture_obstacle else WARM
    turns: list[dict[str, float]] = []
    for turn in range(warm + rounds):
        yield f"parts of a cycle, {turn} of {warm + rounds}"
        found = {}
        for name in VARIANTS if turn % 2 else reversed(VARIANTS):
            again()
            found[name] = 1000 * timed(reader, partial(write, reader, ids[:chunk], **VARIANTS[name]))
        turns.append(found)
    reader.clear()
    turns = turns[warm:]
    middle = {f"{name}_ms": statistics.median(turn[name] for turn in turns) for name in VARIANTS}
    return Parts(chunk, len(reader.session.catalyst), **middle, rounds=tuple(turns))


def steady(reader: Reader, ids: list[int]) -> Callable[[], None]:
    """Bring a reader to where a cycle begins; return what brings it there again."""
    reader.clear()
    first = reader.config.capacity - len(reader.session.catalyst)
    write(reader, ids[:first], distil=True)
    write(reader, ids[: reader.config.chunk(len(reader.session.catalyst))], distil=True)
    return snapshot(reader)


def snapshot(reader: Reader) -> Callable[[], None]:
    """Return what puts a reader back to how it is now; no tensor of its pot moves."""
    before = reader.session.fork()
    return lambda: reader.session.put_back(before)


def write(reader: Reader, ids: list[int], distil: bool, scored: bool = True) -> None:
    """Write a chunk as the reader does: in blocks, distilling after the last."""
    for block, last in blocks(ids):
        reader.session.write(block, distil=distil and last, scored=scored)


def blocks(ids: list[int]) -> Iterator[tuple[list[int], bool]]:
    """Parts of a chunk that are one forward each, and whether nothing follows."""
    for start in range(0, len(ids), BLOCK):
        yield ids[start : start + BLOCK], start + BLOCK >= len(ids)


def timed(reader: Reader, run: Callable[[], None]) -> float:
    """Seconds until the device is done."""
    return seconds(run, reader.model.device)
