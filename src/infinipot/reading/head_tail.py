"""Truncation as a prompt edit (LongBench's): both ends of a prompt, its middle thrown away.

Holds no more tokens than a pot has entries, however long the text. Knows
nothing of models; the model never sees the middle at all.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import TypeGuard

from infinipot.errors import InputError


class HeadAndTail:
    """The first and the last tokens of everything pushed."""

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
        """Return it as data."""
        return {"total": self.total, "first": list(self.first), "last": list(self.last)}

    @classmethod
    def restored(cls, state: object, most: int) -> HeadAndTail:
        """Return it from data, which may come from a stranger."""
        told = state if isinstance(state, dict) else {}
        total, first, last = (told.get(name) for name in ("total", "first", "last"))
        if type(total) is not int or not _tokens(first, min(most, total)) or not _tokens(last, len(first)):
            raise InputError("this state's ends of a text are damaged: make the pot again")
        ends = cls(most)
        ends.total, ends.first = total, list(first)
        ends.last.extend(last)
        return ends

    def copy(self) -> HeadAndTail:
        """Return an independent copy."""
        twin = HeadAndTail(self.most)
        twin.total, twin.first, twin.last = self.total, list(self.first), self.last.copy()
        return twin


def _tokens(found: object, count: int) -> TypeGuard[list[int]]:
    """Say whether this is a list of so many tokens."""
    return isinstance(found, list) and len(found) == count and all(type(one) is int for one in found)
