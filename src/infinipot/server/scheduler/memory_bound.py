"""Memory of a server: what it holds, and the bound that it prints at its start and never exceeds."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import psutil
import torch

from infinipot.engine import Engine
from infinipot.models.memory import forget_peak, recent_peak_bytes
from infinipot.reading.held_words import LEAST
from infinipot.reading.reader import Reader
from infinipot.reading.sampling import Generation

SHARE = 0.1  # of what was measured, for requests' own text and the allocator's waste
FLOOR = 200_000_000  # bytes; likewise, where little was measured
SMALL = 16 * 2**20  # bytes of a kept pot beside its slots: the last hidden state, numbers


class MemoryBound:
    """What was measured while warming up."""

    def __init__(self, engine: Engine) -> None:
        self._device = engine.model.device
        self.pots = self.bound = 0
        self.largest = 0  # bytes of a kept pot of this model and recipe, at most

    def measure(self, readers: Sequence[Reader], at_once: int, given_up: Callable[[], bool]) -> None:
        """Read two full cycles in one pot, so that everything that will ever be allocated has been."""
        reader = readers[0]
        vocabulary, capacity = reader.model.vocabulary, reader.config.capacity
        tokens = [index % vocabulary for index in range(1, 2 * capacity)]
        forget_peak(str(self._device))  # loading takes more than serving ever will
        try:
            for _ in reader.reading_tokens([tokens]):
                if given_up():
                    return
            list(reader.generate(tokens[:8], Generation(4)))
            # Slots; a place and an id of each in the trace, and what the last token gave it.
            self.largest = reader.pot.nbytes + (16 + 4) * reader.pot.slots + SMALL
        finally:
            reader.clear()
        self.pots = sum(one.pot.nbytes for one in readers)
        traces = sum(2 * 16 * max(LEAST, reader.pot.slots) for reader in readers)
        # A kept pot is there a second time until its request goes on; one more has its words looked at.
        spare = 1 if self._device.type == "cuda" else at_once + 1
        peak = max(recent_peak_bytes(str(self._device)), self._now())
        self.bound = int(peak * (1 + SHARE)) + FLOOR + traces + spare * self.largest

    def numbers(self) -> dict[str, int]:
        """Return what is held now, and the bound."""
        held = {"pots_bytes": self.pots, "memory_bytes": self._now()}
        return {**held, "memory_bound_bytes": self.bound}

    def _now(self) -> int:
        if self._device.type == "cuda":
            return torch.cuda.memory_allocated(self._device)
        return int(psutil.Process().memory_info().rss)
