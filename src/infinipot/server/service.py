"""From a request to the kitchen and back: who asks, is there room, and what if the caller leaves.

Knows requests and tickets; not what is asked nor how the answer looks.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Coroutine
from contextlib import suppress
from typing import Any, TypeVar, cast

from starlette.requests import Request

from infinipot.server.errors import CLOSING, ApiError
from infinipot.server.kitchen import Kitchen
from infinipot.server.metrics import Metrics
from infinipot.server.orders import Event, Order
from infinipot.server.settings import Settings
from infinipot.server.shelf import space
from infinipot.server.ticket import Ticket
from infinipot.store import PotStore
from infinipot.store.names import check
from infinipot.text.files import title

T = TypeVar("T")


class Service:
    """What every route needs."""

    def __init__(self, settings: Settings, kitchen: Kitchen, store: PotStore) -> None:
        self.settings, self.kitchen, self.store = settings, kitchen, store
        self.model = title(settings.model)
        self.created = int(time.time())
        self.metrics = Metrics(kitchen.state)
        self.uploads = 0
        self.closing = False
        self.failed: Exception | None = None  # why the kitchen did not start

    @staticmethod
    def of(request: Request) -> Service:
        """Return the service of a request's app."""
        return cast("Service", request.app.state.service)

    def pots(self, request: Request) -> PotStore:
        """Return the pots of whoever asks, and of nobody else."""
        return space(self.store, tenant(request))

    @property
    def obstacle(self) -> str:
        """Why no work is taken; empty where it is."""
        if self.closing:
            return CLOSING
        if self.dead:
            return "the server's worker died: its log says why"
        return "" if self.kitchen.ready else "the server is getting ready: try again in a moment"

    @property
    def dead(self) -> bool:
        """The kitchen works no more, or never did."""
        return self.failed is not None or bool(self.kitchen.reason and not self.kitchen.alive)

    def check_model(self, name: str | None) -> None:
        """Refuse a model that is not the one served."""
        if name is not None and name != self.model:
            text = f"there is no model of that name here: use '{self.model}'"
            raise ApiError(404, text, param="model", code="model_not_found")

    def check_open(self) -> None:
        """Refuse work that would not be done."""
        if self.obstacle:
            raise ApiError(503, self.obstacle, retry_after=5)

    def submit(self, order: Order) -> Ticket:
        """Hand in an order, or say why not."""
        self.check_open()
        return self.kitchen.submit(order)

    async def events(self, ticket: Ticket) -> AsyncGenerator[Event, None]:
        """Yield what comes of an order; whoever stops listening takes the order back."""
        watch = self.metrics.watch()
        try:
            async for event in ticket:
                watch.see(event)
                yield event
        finally:
            ticket.cancel()


def tenant(request: Request) -> str:
    """Return who asks."""
    return cast("str", request.state.tenant)


async def require(store: PotStore, name: str) -> None:
    """Refuse a name that no pot of this tenant has; another tenant's pots are not there."""
    if check(name) not in await asyncio.to_thread(store.names):
        said = f"there is no pot '{name}': GET /v1/pots lists yours"
        raise ApiError(404, said, param="pot", code="no_pot")


async def unless_gone(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """Return what the work gives; end it when the caller leaves, whose body is all here already."""
    task = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(_left(request))
    try:
        await asyncio.wait({task, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ApiError(499, "the client left")
        return task.result()
    finally:
        for each in (task, leaving):
            each.cancel()
            with suppress(BaseException):
                await each


async def _left(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
