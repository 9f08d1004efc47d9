"""Sizes and manners of a pot: frozen, and checked where they are made.

Knows the paper's symbols and nothing of models or text. What depends on the
catalyst's length is checked by `PotConfig.chunk`, once that length is known.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from infinipot.errors import ConfigError

Pooling = Literal["mean", "max"]
Tail = Literal["distil", "fill", "raw"]
DEFAULT_CAPACITY = 4096


@dataclass(frozen=True)
class PotConfig:
    """How large the pot is and how much of it a distillation leaves.

    capacity  |M|, the most entries a layer and head ever hold.
    keep      |C|, entries left after a distillation; None means half of capacity
              (the paper never prints its value).
    opening   this many first slots are never dropped; 0 as in the paper.
    closing   this many last slots are never dropped; 0 as in the paper.
    tail      what becomes of a text's end, read since the last distillation, before a question:
              `distil` reduces the pot to |C| once more, so that the end weighs no more than the rest;
              `fill` leaves as much as fits beside the question and its answer; `raw` leaves all of it.
    """

    capacity: int = DEFAULT_CAPACITY
    keep: int | None = None
    opening: int = 0
    tail: Tail = "distil"
    closing: int = 0

    def __post_init__(self) -> None:
        if self.capacity < 4:
            remedy = "use at least 4 entries (2048 is a good start)"
            raise ConfigError(f"capacity is {self.capacity}", field="capacity", remedy=remedy)
        if self.keep is not None and not 1 <= self.keep < self.capacity:
            remedy = f"use 1 to {self.capacity - 1}, below `capacity`"
            raise ConfigError(f"keep is {self.keep}", field="keep", remedy=remedy)
        if self.tail not in ("distil", "fill", "raw"):
            raise ConfigError(f"tail is '{self.tail}'", field="tail", remedy="use distil, fill or raw")
        if not 0 <= self.opening <= self.kept:
            remedy = f"use 0 to {self.kept}, the entries kept"
            raise ConfigError(f"opening is {self.opening}", field="opening", remedy=remedy)
        if not 0 <= self.closing <= self.kept - self.opening:
            remedy = f"use 0 to {self.kept - self.opening}, the entries kept less the opening"
            raise ConfigError(f"closing is {self.closing}", field="closing", remedy=remedy)

    @property
    def kept(self) -> int:
        """|C|: entries left after a distillation."""
        return self.capacity // 2 if self.keep is None else self.keep

    def chunk(self, catalyst: int) -> int:
        """Return how many new tokens one cycle reads beside a catalyst of this length."""
        room = self.capacity - self.kept - catalyst
        if room < 1:
            most = self.capacity - catalyst - 1
            if self.keep is None or most < 1:
                remedy = f"use `capacity` {2 * (catalyst + 1)} or more"
            else:
                remedy = f"use `keep` {most} or less (`step` {catalyst + 1} or more)"
            raise ConfigError(
                f"capacity {self.capacity} is too small for {self.kept} kept entries and a catalyst of "
                f"{catalyst} tokens",
                field="capacity",
                remedy=f"{remedy}, or a shorter catalyst",
            )
        return room


@dataclass(frozen=True)
class ReadingMode:
    """How a method reads, beside which slots it keeps; the defaults are InfiniPot's.

    prompt     `truncate` throws the middle of the text away before it is read.
    distil     when entries are dropped: when the pot is `full`, once after the `prompt`
               (so the whole prompt is held first), or `never`.
    positions  `reset` numbers slots 0, 1, 2 ... after each distillation (CR-RoPE); `kept`
               lets them run on; `grouped` is Self-Extend: exact for the nearest `window`
               tokens, in groups of `group` beyond.
    """

    prompt: Literal["whole", "truncate"] = "whole"
    distil: Literal["full", "prompt", "never"] = "full"
    positions: Literal["reset", "kept", "grouped"] = "reset"
    group: int = 2
    window: int = 1024

    def __post_init__(self) -> None:
        if self.group < 1:
            raise ConfigError(f"group is {self.group}", field="group", remedy="use at least 1")
        if self.window < 1:
            raise ConfigError(f"window is {self.window}", field="window", remedy="use at least 1")

    @property
    def grows(self) -> bool:
        """Say whether the number of entries follows the text's length: memory is not bounded."""
        return self.prompt == "whole" and self.distil != "full"


DEFAULT_MODE = ReadingMode()
