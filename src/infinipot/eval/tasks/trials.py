"""The trials of a retrieval test: some at every depth of every length, each with a seed of its own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from infinipot.errors import ConfigError
from infinipot.recipes.option import Option

LENGTHS = Option(
    "lengths", int, (4096, 8192, 16384), "Tokens of a text, e.g. 8k,128k,1m.", least=1, many=True
)
DEPTHS = Option(
    "depths", float, (0.1, 0.5, 0.9), "Where the needle lies, from 0, first, to 1, last.",
    least=0, most=1, many=True,
)  # fmt: skip
TRIALS = Option("trials", int, 5, "Examples of each length and depth.", least=1)
OPTIONS = (LENGTHS, DEPTHS, TRIALS)


@dataclass(frozen=True)
class Trial:
    """One text of one length with one thing hidden in it at one depth."""

    length: int  # tokens
    depth: float  # 0 first, 1 last
    number: int
    seed: int

    @property
    def id(self) -> str:
        """The trial's name in results."""
        return f"{self.length}-{self.depth:g}-{self.number}"

    @property
    def facts(self) -> dict[str, str | int | float]:
        """What goes into the trial's row."""
        return {"length": self.length, "depth": self.depth, "trial": self.number, "seed": self.seed}


@dataclass(frozen=True, kw_only=True)
class Trials:
    """What the tasks with trials share."""

    lengths: tuple[int, ...] = LENGTHS.default
    depths: tuple[float, ...] = DEPTHS.default
    trials: int = TRIALS.default
    seed: int = 0

    def __post_init__(self) -> None:
        TRIALS.check(self.trials)
        for option, values in ((LENGTHS, self.lengths), (DEPTHS, self.depths)):
            for value in values:
                option.check(value)
            names = [f"{value:g}" if isinstance(value, float) else str(value) for value in values]
            if not names or len(set(names)) < len(names):
                problem = f"`{option.name}` {'has a value twice' if names else 'is empty'}"
                raise ConfigError(problem, field=option.name, remedy="name each once, and more `trials`")

    def describe(self) -> dict[str, Any]:
        """Return what the trials depend on."""
        return {"lengths": list(self.lengths), "depths": list(self.depths), "trials": self.trials}

    def each(self) -> Iterator[Trial]:
        """Yield the trials length by length, depth by depth."""
        for length in self.lengths:
            for depth in self.depths:
                for trial in range(self.trials):
                    yield Trial(length, depth, trial, self.seed + 1000 * trial + int(100 * depth) + length)
