"""A request's way back: events from the kitchen's thread to whoever waits in an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress

from infinipot.server.orders import Answered, Event, Kept, Order


class Ticket:
    """What a submitted order gets: its events, and a way to give it up."""

    def __init__(self, order: Order, wake: Callable[[], None] = lambda: None) -> None:
        self.order = order
        self.cancelled = False
        self._wake = wake
        self._loop = asyncio.get_running_loop()
        self._events: asyncio.Queue[Event | Exception] = asyncio.Queue()

    def cancel(self) -> None:
        """Give the order up: its slot is free within one chunk."""
        self.cancelled = True
        self._wake()

    def put(self, event: Event | Exception) -> None:
        """Tell whoever waits; called from the kitchen's thread."""
        with suppress(RuntimeError):  # the loop is closed, so nobody waits
            self._loop.call_soon_threadsafe(self._events.put_nowait, event)

    async def __aiter__(self) -> AsyncIterator[Event]:
        """Yield events up to the last; raise what went wrong."""
        while True:
            event = await self._events.get()
            if isinstance(event, Exception):
                raise event
            yield event
            if isinstance(event, Answered | Kept):
                return
