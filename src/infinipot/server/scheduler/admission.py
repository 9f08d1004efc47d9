"""Which request begins next, whether one more may wait, and how long that is likely to take."""

import time
from collections import Counter
from collections.abc import Sequence

from infinipot.server.scheduler.handlers import Running
from infinipot.server.scheduler.queue import FairQueue, expected_waits
from infinipot.server.scheduler.requests import BusyError, ChatRequest, ReadIntoPot, RequestHandle
from infinipot.server.settings import Settings

USUAL_S = 1.0  # what a request takes, as long as none of its kind has ended
CHANGE = 0.2  # how much the last request counts for what one usually takes


class Admission:
    """The queue, and what is known of the time that requests take."""

    def __init__(self, settings: Settings) -> None:
        self.queue = FairQueue()
        self._slots, self._longest = settings.slots, settings.queue
        self._shared = len(settings.keys.digests) > 1
        # One slot is never taken by an upload, which may be read for hours: a question need not wait for it.
        self._most_uploads = max(1, settings.slots - 1)
        self._usual: dict[type, float] = {}  # seconds that a request of a kind takes, lately

    def require_room(self, tenant: str, running: Sequence[Running]) -> None:
        """Refuse a request that would wait behind too many others; say when to come back."""
        if self.queue.has_room(tenant, self._longest + self._slots - len(running), self._shared):
            return
        waiting = [self._takes(type(handle.request)) for handle in self.queue]
        wait = max(1, round(self._waits([*waiting, self._takes(ChatRequest)], running)[-1]))
        raise BusyError(f"all slots are busy and {len(self.queue)} wait: try again in {wait} s", wait)

    def next(self, running: Sequence[Running]) -> RequestHandle | None:
        """Return the request that may begin now, in the queue's order; uploads leave a slot to questions."""
        if not len(self.queue) or len(running) >= self._slots:
            return None
        uploads = sum(isinstance(one.handle.request, ReadIntoPot) for one in running)
        for handle in self.queue.order(_at_work(running)):
            if uploads < self._most_uploads or not isinstance(handle.request, ReadIntoPot):
                return handle
        return None

    def tell(self, running: Sequence[Running]) -> None:
        """Tell those who wait their place, and how long it may take."""
        if not len(self.queue):
            return
        order = list(self.queue.order(_at_work(running)))
        waits = self._waits([self._takes(type(handle.request)) for handle in order], running)
        for place, (handle, wait) in enumerate(zip(order, waits, strict=True), 1):
            handle.tell_place(place, wait)

    def note_ended(self, running: Running) -> None:
        """Learn from a request how long one takes."""
        took, kind = time.monotonic() - running.started, type(running.handle.request)
        self._usual[kind] = CHANGE * took + (1 - CHANGE) * self._usual.get(kind, took)

    def _waits(self, takes: Sequence[float], running: Sequence[Running]) -> list[float]:
        left = [one.seconds_left(self._takes(type(one.handle.request))) for one in running]
        return expected_waits(left, takes, self._slots)

    def _takes(self, kind: type) -> float:
        return self._usual.get(kind, USUAL_S)


def _at_work(running: Sequence[Running]) -> Counter[str]:
    return Counter(one.handle.request.tenant for one in running)
