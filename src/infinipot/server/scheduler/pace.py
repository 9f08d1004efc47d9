"""How many tokens of texts are read between two tokens of those who wait for answers.

A chunk of a text takes as long as several decoded tokens, so answers slow down while a text is read. `Pace`
measures both and chooses the largest chunk that keeps answers within a given slowdown. Knows no models.
"""

import time
from collections.abc import Callable

from infinipot.reading.plan import BLOCK

LEAST = {"cpu": 16, "cuda": 256}  # tokens of the smallest chunk; below, a card takes hardly less time
FEW = 256  # tokens at once while several read and nobody waits for a token, on a CPU: a newcomer waits less
TWICE = 1.4  # times as long for a chunk twice as large, hopefully: if it is more, that is seen at once
CHANGE = 0.25  # how much the last step counts for what steps take
REFRESH = 32  # steps after which one is made without reading, to see what that takes now


class Pace:
    """Measures steps, and says how much may be read in the next one."""

    def __init__(
        self,
        device: str,
        slowdown: float,
        chunk: int | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.least = LEAST.get(device, 64)
        self._shared = FEW if device == "cpu" else BLOCK
        self._aligns = device == "cuda" and not chunk
        self._slowdown, self._fixed, self._clock = slowdown, chunk, clock
        self._quiet: dict[int, float] = {}  # seconds of a step without reading, by number of answers
        self._reading: dict[int, float] = {}  # seconds that a chunk adds, by its size
        self._credit = 0.0  # seconds of reading that quiet steps have earned
        self._since = 0  # steps with reading since the last one without
        self._began = 0.0

    def chunk(self, answering: int, running: int) -> int:
        """Return how many tokens may be read in this step; 0 for none."""
        self._began = self._clock()
        if not answering:
            return BLOCK if running < 2 else min(BLOCK, self._fixed or self._shared)
        if self._fixed:
            return min(BLOCK, self._fixed)
        many = _size(answering)
        if many not in self._quiet or self._since >= REFRESH:
            return 0
        allowed = (self._slowdown - 1) * self._quiet[many]
        size = BLOCK
        while size > self.least and self._cost(size) > allowed:
            size //= 2
        if self._cost(size) > allowed + self._credit:  # even the smallest is too much for every step
            self._credit += allowed
            return 0
        return size

    def block(self, chunk: int, read: int) -> int:
        """Return how many tokens a pass may take of a chunk, where a cycle has so many entries already.

        On a card cycles are captured in chunks of one size. Where sizes mix, a large one must not begin in
        the midst of where it was captured: that pass would be plain, and take several times as long. A pot
        that went on from elsewhere meets no captured chunk whatever its size.
        """
        size = chunk or self.least
        while self._aligns and size > self.least and read % size and not read % self.least:
            size //= 2
        return size

    def note(self, answering: int, tokens: int) -> None:
        """Learn from the step that ends now, in which so many tokens were read."""
        if not answering:
            self._credit = 0.0
            return
        took, many = self._clock() - self._began, _size(answering)
        if not tokens:
            self._since = 0
            self._quiet[many] = _mean(self._quiet.get(many), took)
            return
        self._since += 1
        self._credit = 0.0
        if many in self._quiet:
            size = min(BLOCK, max(self.least, _size(tokens)))
            added = max(0.0, took - self._quiet[many])
            self._reading[size] = _mean(self._reading.get(size), added)

    def _cost(self, size: int) -> float:
        """Seconds that a chunk is likely to add to a step; of one not seen yet, by the nearest that was."""
        if size in self._reading:
            return self._reading[size]
        if not self._reading:  # begin with the smallest
            return 0.0 if size == self.least else float("inf")
        near = min(self._reading, key=lambda one: max(one, size) / min(one, size))
        cost = self._reading[near]
        while near < size:
            near, cost = 2 * near, cost * TWICE
        return cost * size / near


def _size(count: int) -> int:
    """The power of two that a number is padded to."""
    return 1 << (count - 1).bit_length()


def _mean(before: float | None, now: float) -> float:
    return now if before is None else CHANGE * now + (1 - CHANGE) * before
