"""Everything a reader knows beside its pot's slots, listed once: fork copies it, save and load go over it."""

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, fields, replace
from typing import Self, TypeGuard

from torch import Tensor

from infinipot.core.state import State, damaged
from infinipot.text.sentences import MOST, START, Since

LONGEST = 2**62
# What states were called before; a file kept then still loads.
FORMER = {"talking": "in_dialogue", "fresh": "has_undistilled", "fitted": "tail_was_filled"}
FORMER["ends"] = "head_tail"


class HeadAndTail:
    """The first and the last tokens of everything pushed: at most as many each as a pot has entries.

    Truncation as a prompt edit (LongBench's): the model never sees the middle of a long prompt.
    """

    def __init__(self, most: int) -> None:
        self.most, self.total = most, 0
        self.first: list[int] = []
        self.last: deque[int] = deque(maxlen=most)

    def push(self, tokens: Iterable[int]) -> None:
        """Take note of further tokens."""
        for token in tokens:
            if len(self.first) < self.most:
                self.first.append(token)
            self.last.append(token)
            self.total += 1

    def cut(self, limit: int) -> list[int]:
        """Everything if it fits the limit, else int(limit / 2) tokens from each end."""
        if self.total <= limit:
            return self.first[: self.total]
        half = limit // 2
        return [*self.first[:half], *list(self.last)[len(self.last) - half :]]

    def state(self) -> dict[str, object]:
        """Return both ends as data."""
        return {"total": self.total, "first": list(self.first), "last": list(self.last)}

    @classmethod
    def restored(cls, state: object, most: int) -> Self:
        """Return both ends from data, which may come from a stranger."""
        told = state if isinstance(state, dict) else {}
        total, first, last = (told.get(name) for name in ("total", "first", "last"))
        if type(total) is not int or not _is_tokens(first) or not _is_tokens(last):
            raise damaged("ends of a text are damaged")
        if not len(first) == len(last) == min(most, total):
            raise damaged("ends of a text are not as long as they should be")
        ends = cls(most)
        ends.total, ends.first = total, list(first)
        ends.last.extend(last)
        return ends

    def copy(self) -> "HeadAndTail":
        """Return an independent copy."""
        twin = HeadAndTail(self.most)
        twin.total, twin.first, twin.last = self.total, list(self.first), self.last.copy()
        return twin


@dataclass
class ReaderState:
    """What reading and answering change.

    pending          tokens read, or shown to the user, that are not in the pot yet.
    last_hidden      [1, 1, H] hidden state before the next token: the next token's novelty needs it.
    in_dialogue      a reply was given, so the next message is a further turn.
    has_undistilled  text was read since the last distillation.
    tail_was_filled  the last distillation left more than |C|, since a text ended.
    exhausts_pot     the last answer filled the pot beyond what can be distilled.
    sentence         the sentence that the next token may go on with, where a policy asks for sentences.
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
    sentence: Since = START
    head_tail: HeadAndTail | None = None

    def copy(self) -> Self:
        """Return an independent copy; tensors are replaced, never written, so they are shared."""
        ends = self.head_tail and self.head_tail.copy()
        return replace(self, pending=list(self.pending), head_tail=ends)

    def saved(self) -> State:
        """Return every field as data."""
        numbers = {one.name: getattr(self, one.name) for one in fields(self) if one.name != "last_hidden"}
        numbers["pending"], numbers["sentence"] = list(self.pending), [int(one) for one in self.sentence]
        numbers["head_tail"] = self.head_tail and self.head_tail.state()
        return State({} if self.last_hidden is None else {"last": self.last_hidden}, numbers)

    @classmethod
    def loaded(
        cls, state: State, vocabulary: int, cut: int | None, check: Callable[[Tensor], Tensor]
    ) -> Self:
        """Return the state of saved data, which may come from a stranger; `check` looks at the hidden state.

        `cut` is the most tokens that both ends of a text hold, for recipes that never read its middle.
        """
        told = {FORMER.get(name, name): value for name, value in state.numbers.items()}
        # Older states do not say all that is true or false.
        flags = {one.name: told.get(one.name, False) for one in fields(cls) if one.type is bool}
        for name, found in flags.items():
            if found not in (0, 1):
                raise damaged(f"{name} is {found!r}, not true or false")
        seconds, pending, last = told.get("seconds", 0.0), told.get("pending"), state.tensors.get("last")
        if not isinstance(seconds, int | float) or not 0 <= seconds < LONGEST:
            raise damaged("seconds are damaged")
        if not _is_tokens(pending) or not all(0 <= one < vocabulary for one in pending):
            raise damaged("pending tokens are damaged")
        return cls(
            tokens_read=state.number("tokens_read", 0, LONGEST),
            seconds=float(seconds),
            pending=list(pending),
            last_hidden=None if last is None else check(last),
            sentence=_sentence(told.get("sentence", [0] * len(START))),
            head_tail=None if cut is None else HeadAndTail.restored(told.get("head_tail"), cut),
            **{name: bool(found) for name, found in flags.items()},
        )


def _sentence(found: object) -> Since:
    """Where a stream of sentences was; an older state does not say."""
    if not _is_tokens(found) or len(found) != len(START) or min(found) < 0 or max(found) > MOST:
        raise damaged("sentence is damaged")
    number, ended, lines, spaced, length = found
    return Since(number, ended, lines, bool(spaced), length)


def _is_tokens(found: object) -> TypeGuard[list[int]]:
    """Say whether this is a list of whole numbers."""
    return isinstance(found, list) and all(type(one) is int for one in found)


@dataclass
class Uncounted:
    """Tokens that a captured graph wrote after a pot's last slot and the pot has not counted yet."""

    count: int = 0
    novelty: list[tuple[Tensor, int]] = field(default_factory=list)  # in a step's [N] the row, if asked for
    sentences: list[int] = field(default_factory=list)  # their numbers, if asked for
    hidden: tuple[Tensor, int] | None = None  # in the last step's [N, 1, H] the row
