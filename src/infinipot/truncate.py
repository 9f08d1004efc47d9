"""Truncation as a prompt edit (LongBench's): both ends of a prompt, its middle thrown away.

Holds no more tokens than a pot has entries, however long the text. Knows
nothing of models; the model never sees the middle at all.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable


class Ends:
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

    def copy(self) -> Ends:
        """Return an independent copy."""
        twin = Ends(self.most)
        twin.total, twin.first, twin.last = self.total, list(self.first), self.last.copy()
        return twin
