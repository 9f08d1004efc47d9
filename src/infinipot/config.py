"""Sizes and knobs of a pot: frozen, and checked where they are made.

Knows the paper's symbols and nothing of models or text. What depends on the
catalyst's length is checked by `PotConfig.chunk`, once that length is known.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from infinipot.errors import ConfigError

Pooling = Literal["mean", "max"]
DEFAULT_CAPACITY = 4096


@dataclass(frozen=True)
class PotConfig:
    """How large the pot is and how it is distilled.

    capacity  |M|, the most entries a layer and head ever hold.
    keep      |C|, entries left after a distillation; None means half of capacity
              (the paper never prints its value).
    novelty   alpha, the share of `keep` given to the most novel slots.
    pool      average or take the maximum of the catalyst score over this many
              neighbouring slots; 1 is off, as in the paper.
    opening   this many first slots are never dropped; 0 as in the paper.
    settle    before a question, distil what was read since the last distillation too,
              so that the end of a long text weighs no more than the rest of it.
    """

    capacity: int = DEFAULT_CAPACITY
    keep: int | None = None
    novelty: float = 0.5
    pool: int = 1
    pooling: Pooling = "mean"
    opening: int = 0
    settle: bool = True

    def __post_init__(self) -> None:
        if self.capacity < 4:
            raise ConfigError(f"capacity is {self.capacity}; use at least 4 entries (2048 is a good start)")
        if self.keep is not None and not 1 <= self.keep < self.capacity:
            raise ConfigError(f"keep is {self.keep}; use 1 to {self.capacity - 1}, below the capacity")
        if not 0 <= self.novelty <= 1:
            raise ConfigError(f"novelty is {self.novelty:g}; use a share between 0 and 1")
        if self.pool < 1 or self.pool % 2 == 0:
            raise ConfigError(f"pool is {self.pool}; use an odd number of slots, or 1 for no pooling")
        if self.pooling not in ("mean", "max"):
            raise ConfigError(f"pooling is '{self.pooling}'; use mean or max")
        if not 0 <= self.opening <= self.kept:
            raise ConfigError(f"opening is {self.opening}; use 0 to {self.kept}, the entries kept")

    @property
    def kept(self) -> int:
        """|C|: entries left after a distillation."""
        return self.capacity // 2 if self.keep is None else self.keep

    def chunk(self, catalyst: int) -> int:
        """Return how many new tokens one cycle reads beside a catalyst of this length."""
        room = self.capacity - self.kept - catalyst
        if room < 1:
            need = self.kept + catalyst + 1
            raise ConfigError(
                f"capacity {self.capacity} is too small for {self.kept} kept entries and a catalyst of "
                f"{catalyst} tokens: use --capacity {need} or more, a smaller --keep, or a shorter catalyst"
            )
        return room
