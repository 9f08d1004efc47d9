"""From a route to the scheduler and back: who asks, whether there is room, and what if the caller leaves."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager, suppress
from typing import Annotated, TypeVar, cast

from fastapi import Depends, Request

from infinipot.server.http.errors import CLOSING, ApiError
from infinipot.server.http.metrics import Metrics, RequestMetrics
from infinipot.server.scheduler import requests
from infinipot.server.scheduler.pot_library import tenant_store
from infinipot.server.scheduler.scheduler import Scheduler
from infinipot.server.settings import Settings
from infinipot.store.names import check
from infinipot.text.files import title

T = TypeVar("T")
LOOK_S = 0.1  # how often it is looked whether a caller has left


class Service:
    """What every route needs."""

    def __init__(self, settings: Settings, scheduler: Scheduler) -> None:
        self.settings, self.scheduler = settings, scheduler
        self.model = title(settings.model)
        self.created = int(time.time())
        self.metrics = Metrics(scheduler.state)
        self.uploads = 0  # that are being received
        self.closing = False
        self.failed: Exception | None = None  # why the scheduler did not start

    @property
    def obstacle(self) -> str:
        """Why the server takes no work; empty where it does."""
        if self.closing:
            return CLOSING
        if self.dead:
            return "the server's worker died: its log says why"
        return "" if self.scheduler.ready else "the server is getting ready: try again in a moment"

    @property
    def dead(self) -> bool:
        """Say whether the scheduler works no more, or never did."""
        return self.failed is not None or bool(self.scheduler.failure)

    def check_model(self, name: str | None) -> None:
        """Refuse a model that is not the one served."""
        if name is not None and name != self.model:
            text = f"there is no model of that name here: use '{self.model}'"
            raise ApiError(404, text, param="model", code="model_not_found")

    def check_open(self) -> None:
        """Refuse work that would not be done."""
        if self.obstacle:
            raise ApiError(503, self.obstacle, retry_after=5)

    @contextmanager
    def one_upload(self) -> Iterator[None]:
        """Be one of the few uploads that are received at once: they fill a disk."""
        if self.uploads >= self.settings.max_uploads:
            raise ApiError(429, "too many uploads at once: try again", code="busy", retry_after=5)
        self.uploads += 1
        try:
            yield
        finally:
            self.uploads -= 1

    def submit(self, request: requests.Request) -> requests.RequestHandle:
        """Hand in a request, or say why not."""
        self.check_open()
        return self.scheduler.submit(request)

    async def outcome(self, handle: requests.RequestHandle, kind: type[T]) -> tuple[str, T]:
        """Return the text and the last event of a request."""
        text: list[str] = []
        async for event in self.events(handle):
            if isinstance(event, requests.Piece):
                text.append(event.text)
            elif isinstance(event, kind):
                return "".join(text), event
        raise requests.FaultError("the request ended early: send it again")

    async def events(self, handle: requests.RequestHandle) -> AsyncGenerator[requests.Event, None]:
        """Yield what comes of a request; a caller who stops listening gives the request up."""
        metrics = RequestMetrics(self.metrics)
        try:
            async for event in handle:
                metrics.see(event)
                yield event
        finally:
            handle.cancel()


class _Caller:
    """The client of one request: its tenant, that tenant's pots, and whether the client is still there."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.service: Service = request.app.state.service
        self.tenant: str = request.state.tenant
        self.pots = tenant_store(self.service.scheduler.store, self.tenant)

    async def require(self, name: str) -> None:
        """Refuse a name that no pot of this tenant has; another tenant's pots are not there."""
        if check(name) not in await asyncio.to_thread(self.pots.names):
            said = f"there is no pot '{name}': GET /v1/pots lists yours"
            raise ApiError(404, said, param="pot", code="no_pot")

    async def outcome(self, handle: requests.RequestHandle, kind: type[T]) -> tuple[str, T]:
        """Return the text and the last event of a request; give the request up when the caller leaves."""
        task = asyncio.ensure_future(self.service.outcome(handle, kind))
        try:
            while not (await asyncio.wait({task}, timeout=LOOK_S))[0]:
                if await self.request.is_disconnected():
                    raise ApiError(499, "the client left")
            return task.result()
        finally:
            task.cancel()
            with suppress(BaseException):
                await task


async def _service(request: Request) -> Service:
    return cast("Service", request.app.state.service)


async def _caller(request: Request) -> _Caller:
    return _Caller(request)


Served = Annotated[Service, Depends(_service)]
Caller = Annotated[_Caller, Depends(_caller)]
