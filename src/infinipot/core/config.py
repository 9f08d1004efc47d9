"""Sizes and manners of a pot: frozen, and checked where they are made.

What depends on the catalyst's length is checked by `PotConfig.chunk`, once that length is known.
"""

from dataclasses import dataclass
from typing import Literal

from infinipot.errors import ConfigError, check

Pooling = Literal["mean", "max"]
Units = Literal["slots", "sentences"]
UNITS: tuple[Units, ...] = ("slots", "sentences")
Tail = Literal["distil", "fill", "raw"]
DEFAULT_CAPACITY = 4096
ALL = -1  # passages: all of the text


@dataclass(frozen=True)
class PotConfig:
    """How large the pot is and how much of it a distillation leaves.

    capacity  |M|, the most entries a layer and head ever hold.
    keep      |C|, entries left after a distillation; None means half of capacity (the paper does not say).
    opening   this many first slots are never dropped; 0 as in the paper.
    closing   this many last slots are never dropped; 0 as in the paper.
    recall    tokens of passages that are read again before an answer; None means a quarter of capacity, 0
              none (the paper's), ALL the whole text with the question known.
    judge     passages at most that the model itself judges before an answer; 0 leaves the choice to words,
              None to words too, but on a card 32 are judged where a question's words find little.
    meaning   sentences at most that are found by their meaning and judged, where a question's words find
              little and the model of sentences was pulled; 0 leaves the choice to words.
    tail      what becomes of a text's end, read since the last distillation, before a question:
              `distil` reduces the pot to |C| once more, so that the end weighs no more than the rest;
              `fill` leaves as much as fits beside the question and its answer; `raw` leaves all of it.
    pot_bits  16: entries as the model makes them; 8: rounded, in less than half the memory.
    """

    capacity: int = DEFAULT_CAPACITY
    keep: int | None = None
    opening: int = 0
    tail: Tail = "distil"
    closing: int = 0
    recall: int | None = None
    judge: int | None = None
    meaning: int = 48
    pot_bits: int = 16

    def __post_init__(self) -> None:
        check(self.pot_bits in (8, 16), "pot_bits", self.pot_bits, "use 8 or 16")
        remedy = "use at least 4 entries (2048 is a good start)"
        check(self.capacity >= 4, "capacity", self.capacity, remedy)
        remedy = f"use 1 to {self.capacity - 1}, below `capacity`"
        check(self.keep is None or 1 <= self.keep < self.capacity, "keep", self.keep, remedy)
        check(self.tail in ("distil", "fill", "raw"), "tail", self.tail, "use distil, fill or raw")
        remedy = f"use 0 to {self.kept}, the entries kept"
        check(0 <= self.opening <= self.kept, "opening", self.opening, remedy)
        remedy = f"use 0 to {self.capacity // 2}, half of `capacity`, or all"
        fits = self.recall is None or ALL <= self.recall <= self.capacity // 2
        check(fits, "recall", self.recall, remedy)
        check(self.judge is None or self.judge >= 0, "judge", self.judge, "use 0 or more passages")
        check(self.meaning >= 0, "meaning", self.meaning, "use 0 or more sentences")
        remedy = f"use 0 to {self.kept - self.opening}, the entries kept less the opening"
        check(0 <= self.closing <= self.kept - self.opening, "closing", self.closing, remedy)

    @property
    def kept(self) -> int:
        """|C|: entries left after a distillation."""
        return self.capacity // 2 if self.keep is None else self.keep

    @property
    def recalled(self) -> int:
        """Tokens of passages that are read again before an answer, or ALL."""
        return self.capacity // 4 if self.recall is None else self.recall

    def chunk(self, catalyst: int) -> int:
        """Return how many new tokens one cycle reads beside a catalyst of this length."""
        room, most = self.capacity - self.kept - catalyst, self.capacity - catalyst - 1
        if room >= 1:
            return room
        remedy = f"use `keep` {most} or less (`step` {catalyst + 1} or more), or a shorter catalyst"
        if self.keep is None or most < 1:
            remedy = f"use `capacity` {2 * (catalyst + 1)} or more, or a shorter catalyst"
        full = f"{self.kept} kept entries and a catalyst of {catalyst} tokens"
        problem = f"capacity {self.capacity} is too small for {full}"
        raise ConfigError(problem, field="capacity", remedy=remedy)


@dataclass(frozen=True)
class ReadingMode:
    """How a method reads, beside which slots it keeps; the defaults are InfiniPot's.

    prompt     `truncate` throws the middle of the text away before it is read; with `passages` only
               those that are recalled for a question are read.
    distil     when entries are dropped: when the pot is `full`, once after the whole `prompt`, or `never`.
    positions  `reset` numbers slots 0, 1, 2 ... after each distillation (CR-RoPE); `kept` lets them run on;
               `grouped` is Self-Extend: exact for the nearest `window` tokens, in groups of `group` beyond.
    """

    prompt: Literal["whole", "truncate", "passages"] = "whole"
    distil: Literal["full", "prompt", "never"] = "full"
    positions: Literal["reset", "kept", "grouped"] = "reset"
    group: int = 2
    window: int = 1024

    def __post_init__(self) -> None:
        check(self.group >= 1, "group", self.group, "use at least 1")
        check(self.window >= 1, "window", self.window, "use at least 1")

    def require_rounding(self) -> None:
        """Refuse a way of reading whose entries are not held in 8 bits: their keys never move."""
        if self.grows or self.positions != "reset":
            problem = "pots of 8 bits are for methods that bound memory and reset positions"
            raise ConfigError(problem, field="pot_bits", remedy="use `pot_bits` 16")

    @property
    def grows(self) -> bool:
        """Say whether the number of entries follows the text's length: memory is not bounded."""
        return self.prompt == "whole" and self.distil != "full"


DEFAULT_MODE = ReadingMode()
