"""The bound on a server's memory: measured while it warms up, printed, and on a card enforced."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from math import ceil

import psutil

from infinipot.common.out_of_memory import out_of_memory
from infinipot.common.sizes import in_bytes
from infinipot.engine import Engine
from infinipot.errors import ConfigError
from infinipot.models.card_memory import CardMemory
from infinipot.models.memory import available, forget_peak, recent_peak_bytes, trim
from infinipot.reading.held_words import LEAST
from infinipot.reading.reader import Reader

SHARE = 0.1  # of what was measured, for requests' own text and the allocator's waste
FLOOR = 200_000_000  # bytes; likewise, where little was measured
TIDY = 32  # requests between two times that freed memory is given back to the system
SMALL = 16 * 2**20  # bytes of a kept pot beside its slots: the last hidden state, numbers
ARCHIVE = 4 * 2**20  # bytes of an archive in memory: SQLite's page cache, and words that are being indexed


class MemoryBound:
    """Memory as measured while warming up; the server prints the bound and never exceeds it."""

    def __init__(self, engine: Engine, card: CardMemory | None = None) -> None:
        device = engine.model.device
        self.card = card or (CardMemory(device) if device.type == "cuda" else None)
        self.pots = self.bound = 0
        self.largest = 0  # bytes of a kept pot of this model and recipe, at most
        self._ended = 0  # requests
        self._graphs = 0  # bytes beside torch's that captured graphs took

    def make_pots(self, readers: Sequence[Reader], make: Callable[[Reader], None]) -> None:
        """Make every reader's pot; say how many there is room for where that is fewer."""
        for count, reader in enumerate(readers):
            try:
                make(reader)
            except Exception as error:
                if not out_of_memory(error):
                    raise
                self._refuse(count, len(readers))
            fit = len(readers) if self.card or count else (available() - FLOOR) // max(1, reader.pot.nbytes)
            if fit < len(readers):  # warming up, and a kept pot on its way in, would find no room
                self._refuse(fit, len(readers))

    def measure(self, readers: Sequence[Reader], at_once: int, warm_up: Callable[[], bool]) -> None:
        """Let the warm-up do everything that takes memory, and take the bound from what it took.

        The warm-up says whether it came to its end; without that there is no bound.
        """
        reader, card = readers[0], self.card
        before = card.beside() if card else 0
        card.forget_peak() if card else forget_peak()  # loading takes more than serving ever will
        if not warm_up():
            return
        # Slots; a place and an id of each in the trace, and what the last token gave it.
        self.largest = reader.pot.nbytes + (16 + 4) * reader.pot.slots + SMALL
        self.pots = sum(one.pot.nbytes for one in readers)
        if card is not None:
            self._graphs = max(0, card.beside() - before)
            self._bound_card(card, len(readers))
            return
        traces = sum(2 * 16 * max(LEAST, reader.pot.slots) for reader in readers)
        # A kept pot is there a second time until its request goes on; one more has its words looked at.
        spare = (at_once + 1) * self.largest + ARCHIVE * (len(readers) + 1)
        peak = max(recent_peak_bytes(), self._now())
        self.bound = int(peak * (1 + SHARE)) + FLOOR + traces + spare

    def _bound_card(self, card: CardMemory, pots: int) -> None:
        """Bound what torch may take of a card, and enforce it; graphs may be captured anew, beside it."""
        peak = card.peak()
        card.release()
        passing = max(0, peak - card.held())  # what computations took beyond weights, pots and graphs
        torchs = peak + int(SHARE * passing) + FLOOR + self.largest  # a kept pot on its way into a slot
        self.bound = torchs + card.beside() + self._graphs
        if self.bound > card.total:
            each = max(1, self.pots // pots)
            self._refuse(pots - ceil((self.bound - card.total) / each), pots)
        card.limit(torchs)

    def _refuse(self, fit: int, wanted: int) -> None:
        there = f"the card has {in_bytes(self.card.total)}" if self.card else ""
        where = there or f"{in_bytes(available())} are free"
        problem = f"{wanted} pots (slots and conversations together) do not fit: {where}"
        fewer, smaller = f"use `slots` and `conversations` of {fit} together", "use a smaller `capacity`"
        raise ConfigError(problem, field="slots", remedy=fewer if fit > 0 else smaller)

    def note_ended(self, background: Callable[[Callable[[], None]], object]) -> None:
        """After every few requests give back, in the background, what they have left unused."""
        self._ended += 1
        if not self._ended % TIDY:
            with suppress(RuntimeError):  # the server is closing
                background(trim)

    def release(self) -> None:
        """Give back what nothing uses."""
        self.card.release() if self.card is not None else trim()

    def unbound(self) -> None:
        """Let the process take what it likes again, when the server has ended."""
        if self.card is not None:
            self.card.limit(self.card.total)

    def room(self) -> int | None:
        """How many more pots of this size the card could hold; None where there is no card."""
        if self.card is None or not self.largest:
            return None
        return max(0, (self.card.total - self.bound) // self.largest)

    def numbers(self) -> dict[str, int]:
        """Return what is held now, and the bound."""
        return {"pots_bytes": self.pots, "memory_bytes": self._now(), "memory_bound_bytes": self.bound}

    def _now(self) -> int:
        if self.card is not None:
            return self.card.held() + self.card.beside()
        return int(psutil.Process().memory_info().rss)
