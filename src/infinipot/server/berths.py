"""A fixed number of pots, and who has which: made once, never more.

Of all berths at most `slots` are at work; the others hold conversations that may go on,
the one longest unused being given up first.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from infinipot.reading.reader import Reader


@dataclass(eq=False)
class Berth:
    """One pot with its reader."""

    reader: Reader
    name: str = ""  # of the conversation in it, if one may go on
    tokens: int = 0  # of that conversation
    busy: bool = False
    used: int = 0

    def leave(self, name: str = "", tokens: int = 0) -> None:
        """Give the berth back, with a conversation in it or empty."""
        if not name:
            self.reader.clear()
        self.busy, self.name, self.tokens = False, name, tokens


class Berths:
    """All pots of a server."""

    def __init__(self, readers: Sequence[Reader], slots: int) -> None:
        self.every = [Berth(reader) for reader in readers]
        self.slots = slots
        self._clock = itertools.count(1)

    @property
    def busy(self) -> int:
        """Berths at work."""
        return sum(berth.busy for berth in self.every)

    @property
    def conversations(self) -> int:
        """Conversations that may go on."""
        return sum(bool(berth.name) and not berth.busy for berth in self.every)

    def take(self, names: Sequence[str] = ()) -> tuple[Berth, int]:
        """Return a berth, and how many messages of the conversation with these names are in it already.

        A slot must be free.
        """
        free = [berth for berth in self.every if not berth.busy]
        held = {berth.name: berth for berth in free if berth.name}
        known = max((index for index, name in enumerate(names) if index and name in held), default=0)
        if known:
            berth = held[names[known]]
        else:
            berth = min(free, key=lambda one: (bool(one.name), one.used))
            berth.leave()
        berth.busy, berth.used = True, next(self._clock)
        return berth, known

    def forget(self, names: set[str]) -> None:
        """Give up conversations by name."""
        for berth in self.every:
            if not berth.busy and berth.name in names:
                berth.leave()
