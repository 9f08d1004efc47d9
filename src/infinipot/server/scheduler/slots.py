"""A fixed number of slots, each a reader with its pot, and the bound on memory that follows from them."""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import psutil
import torch

from infinipot.engine import Engine
from infinipot.models.memory import forget_peak, recent_peak_bytes
from infinipot.reading.held_words import LEAST
from infinipot.reading.reader import Reader
from infinipot.reading.sampling import Generation
from infinipot.recall.archive import Archive

SHARE = 0.1  # of what was measured, for requests' own text and the allocator's waste
FLOOR = 200_000_000  # bytes; likewise, where little was measured
SMALL = 16 * 2**20  # bytes of a kept pot beside its slots: the last hidden state, numbers
ARCHIVE = (
    4 * 2**20
)  # bytes of an archive in memory: SQLite's page cache, and words on their way into the index


@dataclass(eq=False)
class Slot:
    """A reader with its pot, for one request at a time."""

    reader: Reader
    most_archived: int | None = None  # bytes on disk
    conversation: str = ""  # name of the one in the pot, if it may go on
    tokens: int = 0  # of that conversation
    busy: bool = False
    used: int = 0

    def release(self, conversation: str = "", tokens: int = 0) -> None:
        """End a request's use of this slot; without a conversation to keep, pot and archive are emptied."""
        if not conversation:
            self.reader.clear()
            self.reader.archive = Archive(self.most_archived)
        self.busy, self.conversation, self.tokens = False, conversation, tokens


class Slots:
    """All slots of a server, of which at most `at_once` are at work."""

    def __init__(self, readers: Sequence[Reader], at_once: int, most_archived: int | None = None) -> None:
        self.all, self.at_once = [Slot(reader, most_archived) for reader in readers], at_once
        self._clock = itertools.count(1)

    @property
    def busy(self) -> int:
        """Slots at work."""
        return sum(slot.busy for slot in self.all)

    @property
    def conversations(self) -> int:
        """Conversations that may go on."""
        return sum(bool(slot.conversation) and not slot.busy for slot in self.all)

    def take(self, names: Sequence[str] = ()) -> tuple[Slot, int]:
        """Return a free slot, and how many messages of the conversation with these names its pot holds."""
        free = [slot for slot in self.all if not slot.busy]
        held = {slot.conversation: slot for slot in free if slot.conversation}
        known = max((index for index, name in enumerate(names) if index and name in held), default=0)
        if known:
            slot = held[names[known]]
        else:
            slot = min(free, key=lambda one: (bool(one.conversation), one.used))  # longest unused
            slot.release()
        slot.busy, slot.used = True, next(self._clock)
        return slot, known


class MemoryBound:
    """Memory as measured while warming up; the server prints the bound and never exceeds it."""

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
        on_gpu = self._device.type == "cuda"
        spare, archives = (1, 0) if on_gpu else (at_once + 1, ARCHIVE * (len(readers) + 1))
        peak = max(recent_peak_bytes(str(self._device)), self._now())
        self.bound = int(peak * (1 + SHARE)) + FLOOR + traces + spare * self.largest + archives

    def numbers(self) -> dict[str, int]:
        """Return what is held now, and the bound."""
        return {"pots_bytes": self.pots, "memory_bytes": self._now(), "memory_bound_bytes": self.bound}

    def _now(self) -> int:
        if self._device.type == "cuda":
            return torch.cuda.memory_allocated(self._device)
        return int(psutil.Process().memory_info().rss)
