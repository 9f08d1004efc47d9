"""The trials of a retrieval test: some at every depth of every length, each with a seed of its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from infinipot.errors import ConfigError


@dataclass(frozen=True)
class Trial:
    """One of them."""

    length: int  # tokens
    depth: float  # 0 first, 1 last
    number: int
    seed: int

    @property
    def id(self) -> str:
        """Its name in results."""
        return f"{self.length}-{self.depth:g}-{self.number}"

    @property
    def facts(self) -> dict[str, str | int | float]:
        """What goes into its row."""
        return {"length": self.length, "depth": self.depth, "trial": self.number, "seed": self.seed}


def trials(lengths: Sequence[int], depths: Sequence[float], number: int, seed: int) -> Iterator[Trial]:
    """Yield that many for each length and depth, length by length, depth by depth."""
    for length in lengths:
        for depth in depths:
            for trial in range(number):
                yield Trial(length, depth, trial, seed + 1000 * trial + int(100 * depth) + length)


def check(lengths: Sequence[int], depths: Sequence[float], number: int) -> None:
    """Raise ConfigError for what makes no trials, or the same one twice."""
    if not lengths or min(lengths) < 1:
        raise ConfigError(f"lengths are in tokens, at least 1 each: {_listed(lengths)} will not do")
    if not depths or not all(0 <= depth <= 1 for depth in depths):
        raise ConfigError(
            f"depths lie between 0, the beginning, and 1, the end: {_listed(depths)} will not do"
        )
    if number < 1:
        raise ConfigError(f"trials must be at least 1, not {number}")
    for what, values in (("length", lengths), ("depth", [f"{depth:g}" for depth in depths])):
        if len(set(values)) < len(values):
            raise ConfigError(
                f"a {what} is there twice in {_listed(values)}: name it once and ask for more trials"
            )


def _listed(values: Sequence[object]) -> str:
    return ", ".join(map(str, values)) or "none"
