"""Everything a reader knows beside its pot's slots, listed once: fork copies it, save and load go over it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from torch import Tensor

from infinipot.core.state import State
from infinipot.errors import InputError
from infinipot.reading.head_tail import HeadAndTail

LONGEST = 2**62
# What states were called before; a file kept then still loads.
FORMER = {
    "talking": "in_dialogue",
    "fresh": "has_undistilled",
    "fitted": "tail_was_filled",
    "ends": "head_tail",
}


@dataclass
class ReaderState:
    """What reading and answering change.

    pending          tokens read, or shown to the user, that are not in the pot yet.
    last_hidden      [1, 1, H] hidden state before the next token: the next token's novelty needs it.
    in_dialogue      a reply was given, so the next message is a further turn.
    has_undistilled  text was read since the last distillation.
    tail_was_filled  the last distillation left more than |C|, since a text ended.
    exhausts_pot     the last answer filled the pot beyond what can be distilled.
    head_tail        both ends of all text, for recipes that never read its middle.
    """

    tokens_read: int = 0
    seconds: float = 0.0
    pending: list[int] = field(default_factory=list)
    last_hidden: Tensor | None = None
    in_dialogue: bool = False
    has_undistilled: bool = False
    tail_was_filled: bool = False
    exhausts_pot: bool = False
    head_tail: HeadAndTail | None = None

    def copy(self) -> ReaderState:
        """Return an independent copy; tensors are replaced, never written, so they are shared."""
        values = {one.name: getattr(self, one.name) for one in fields(self)}
        values["pending"] = list(self.pending)
        values["head_tail"] = self.head_tail and self.head_tail.copy()
        return ReaderState(**values)

    def saved(self) -> State:
        """Return every field as data."""
        numbers = {one.name: getattr(self, one.name) for one in fields(self) if one.name != "last_hidden"}
        numbers["pending"] = list(self.pending)
        numbers["head_tail"] = self.head_tail and self.head_tail.state()
        return State({} if self.last_hidden is None else {"last": self.last_hidden}, numbers)

    @classmethod
    def loaded(
        cls, state: State, vocabulary: int, cut: int | None, check: Callable[[Tensor], Tensor]
    ) -> ReaderState:
        """Return the state of saved data, which may come from a stranger; `check` looks at the hidden state.

        `cut` is the most tokens that both ends of a text hold, for recipes that never read its middle.
        """
        told = {FORMER.get(name, name): value for name, value in state.numbers.items()}
        flags = {one.name: _flag(told, one.name) for one in fields(cls) if one.type == "bool"}
        last = state.tensors.get("last")
        return cls(
            tokens_read=state.number("tokens_read", 0, LONGEST),
            seconds=_seconds(told.get("seconds", 0.0)),
            pending=_pending(told.get("pending"), vocabulary),
            last_hidden=None if last is None else check(last),
            head_tail=None if cut is None else HeadAndTail.restored(told.get("head_tail"), cut),
            **flags,
        )


def _flag(told: Mapping[str, Any], name: str) -> bool:
    """Return a field that is true or false; older states do not say all of them."""
    found = told.get(name, False)
    if found not in (0, 1):
        raise InputError(f"this state's {name} is {found!r}, not true or false", remedy="make the pot again")
    return bool(found)


def _seconds(found: object) -> float:
    if not isinstance(found, int | float) or not 0 <= found < LONGEST:
        raise InputError("this state's seconds are damaged", remedy="make the pot again")
    return float(found)


def _pending(found: object, vocabulary: int) -> list[int]:
    known = isinstance(found, list) and all(type(one) is int and 0 <= one < vocabulary for one in found)
    if not isinstance(found, list) or not known:
        raise InputError("this state's pending tokens are damaged", remedy="make the pot again")
    return list(found)
