"""A fixed number of slots, each a reader with its pot, for one request at a time."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from infinipot.reading.reader import Reader
from infinipot.recall.archive import Archive


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
            if slot.conversation or not slot.used:  # else it is empty already
                slot.release()
        slot.busy, slot.used = True, next(self._clock)
        return slot, known
