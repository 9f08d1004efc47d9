"""Events on their way from the scheduler's thread to event loops. Knows neither requests nor HTTP."""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator, Sequence, Sized
from contextlib import contextmanager, suppress
from typing import Any

REST = 1.0  # times as long as a loop was busy with events it is left alone, if more will come
LONGEST_S = 0.5  # that events are held back


class Inbox:
    """Events that came, taken all at once by the one who waits for them."""

    def __init__(self) -> None:
        self._events: list[Any] = []
        self._waiter: asyncio.Future[None] | None = None

    def put_nowait(self, event: Any, /) -> None:
        """Take an event, and wake who waits."""
        self._events.append(event)
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def first(self) -> Any:
        """Wait until there is an event; return it, and leave it there."""
        while not self._events:
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        return self._events[0]

    def take(self) -> list[Any]:
        """Return all that came."""
        events, self._events = self._events, []
        return events


Sent = tuple[Inbox, Any]  # an event, and who takes it


class Post:
    """Hands events over; those of one step together.

    To wake another thread takes longer than to make an event, and what the loop then does for every piece
    of text keeps the scheduler from its own work. So what comes while the loop is busy, and as long again,
    waits for the next step: many quick answers come in pieces of some tokens, few or slow ones by the token.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._thread, self._holding = 0, False  # whose events may be held back, and whether they are
        self._held: dict[asyncio.AbstractEventLoop, list[Sent]] = {}
        self._rests = 0.0  # until when the loop is left alone

    @contextmanager
    def together(self, more: Sized = ()) -> Iterator[None]:
        """Hold back this thread's events until the block ends, or another one if there is `more` to come."""
        self._thread, self._holding = threading.get_ident(), True
        try:
            yield
        finally:
            self._holding = False
            if not len(more) or self._clock() >= self._rests:
                self.flush()

    def flush(self) -> None:
        """Hand over what was held back."""
        held, self._held = self._held, {}
        for loop, events in held.items():
            self._hand_over(loop, events)

    def put(self, loop: asyncio.AbstractEventLoop, queue: Inbox, event: Any) -> None:
        """Hand over an event, after this thread's before it: now, or with others."""
        if self._thread != threading.get_ident():
            self._hand_over(loop, [(queue, event)])
            return
        self._held.setdefault(loop, []).append((queue, event))
        if not self._holding:
            self.flush()

    def _hand_over(self, loop: asyncio.AbstractEventLoop, events: Sequence[Sent]) -> None:
        def arrive() -> None:
            began = self._clock()
            for queue, event in events:
                queue.put_nowait(event)
            loop.call_soon(loop.call_soon, done, began)  # after those who were woken by the events

        def done(began: float) -> None:
            now = self._clock()
            self._rests = now + REST * (now - began)

        self._rests = self._clock() + LONGEST_S  # until it is done, or gone
        with suppress(RuntimeError):  # the loop is closed: there is no listener
            loop.call_soon_threadsafe(arrive)
