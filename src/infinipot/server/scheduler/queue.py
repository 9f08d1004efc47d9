"""Requests that wait for a slot: tenants take turns, and each is told its place and how long it may take."""

import heapq
import itertools
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence

from infinipot.server.scheduler.requests import RequestHandle

SPARE = 4  # of so many places in a full queue, one is kept for tenants who have nothing there


class FairQueue:
    """Each tenant's requests in order of arrival; among tenants, who has the fewest at work comes first.

    Of those with equally many, the one who was served longest ago.
    """

    def __init__(self) -> None:
        self._waiting: dict[str, deque[RequestHandle]] = {}
        self._served: dict[str, int] = {}  # when each tenant was last, in turns
        self._turns = itertools.count(1)

    def __len__(self) -> int:
        return sum(map(len, list(self._waiting.values())))

    def __iter__(self) -> Iterator[RequestHandle]:
        return itertools.chain.from_iterable([list(one) for one in list(self._waiting.values())])

    def has_room(self, tenant: str, most: int, shared: bool) -> bool:
        """Say whether one more may wait; if tenants share the queue, the last places are for newcomers."""
        spare = most // SPARE if shared and tenant in self._waiting else 0
        return len(self) < most - spare

    def append(self, handle: RequestHandle) -> None:
        """Let a request wait."""
        self._waiting.setdefault(handle.request.tenant, deque()).append(handle)

    def remove(self, handle: RequestHandle) -> None:
        """Let a request go, to work or for good."""
        tenant = handle.request.tenant
        self._waiting[tenant].remove(handle)
        if not self._waiting[tenant]:
            del self._waiting[tenant]

    def note_served(self, tenant: str) -> None:
        """Take note that a tenant's request begins."""
        self._served[tenant] = next(self._turns)

    def order(self, at_work: Mapping[str, int]) -> Iterator[RequestHandle]:
        """Yield all that wait, in the order in which they will be served if nothing else comes."""
        count, served = Counter(at_work), dict(self._served)
        left = {tenant: deque(handles) for tenant, handles in self._waiting.items()}
        turn = itertools.count(max(served.values(), default=0) + 1)
        while left:
            tenant = min(left, key=lambda one: (count[one], served.get(one, 0)))
            yield left[tenant].popleft()
            count[tenant], served[tenant] = count[tenant] + 1, next(turn)
            if not left[tenant]:
                del left[tenant]


def expected_waits(left: Iterable[float], takes: Sequence[float], slots: int) -> list[float]:
    """Return how many seconds each waiting request waits, in order.

    left: seconds that each running request still takes; takes: seconds that each waiting one will take.
    """
    free = sorted(left)
    free = [0.0] * (slots - len(free)) + free
    heapq.heapify(free)
    found = []
    for seconds in takes:
        start = heapq.heappop(free)
        found.append(start)
        heapq.heappush(free, start + seconds)
    return found
