"""From a route to the scheduler and back, whole or as a stream: who asks, and what if the caller leaves."""

import asyncio
import json
import time
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Annotated, Any, Self, TypeVar, cast

from fastapi import Depends, Request
from sse_starlette import EventSourceResponse, ServerSentEvent
from sse_starlette.sse import SendTimeoutError
from starlette.types import Receive, Scope, Send

from infinipot.errors import InfiniPotError
from infinipot.server.http import errors
from infinipot.server.http.errors import ApiError
from infinipot.server.http.metrics import Metrics, RequestMetrics
from infinipot.server.scheduler import requests
from infinipot.server.scheduler.pot_library import tenant_store
from infinipot.server.scheduler.scheduler import Scheduler
from infinipot.server.settings import Settings
from infinipot.store.base import check
from infinipot.text.files import title

T = TypeVar("T")
KEEP_ALIVE_S = 15
SEND_S = 60.0  # a client that takes nothing for so long is let go
PEEK_S = 1.0  # how long a stream waits for its first event: an error then still has a status of its own
SSE = {"text/event-stream": {"schema": {"type": "string"}}}  # for the OpenAPI document
Sent = dict[str, str]  # "data", and "event" where it has a name


class UploadPlaces:
    """Places for uploads, which fill a disk; of several tenants none can take them all."""

    def __init__(self, most: int, shared: bool) -> None:
        self._most, self._of_one = most, max(1, most - 1) if shared else most
        self._taken: Counter[str] = Counter()

    @contextmanager
    def place(self, tenant: str) -> Iterator[None]:
        """Take a place until the upload is whole or dropped, or say that there is none."""
        if self._taken.total() >= self._most or self._taken[tenant] >= self._of_one:
            raise ApiError(429, "too many uploads at once: try again", code="busy", retry_s=5)
        self._taken[tenant] += 1
        try:
            yield
        finally:
            self._taken[tenant] -= 1


class Service:
    """What every route needs."""

    def __init__(self, settings: Settings, scheduler: Scheduler) -> None:
        self.settings, self.scheduler = settings, scheduler
        self.model = title(settings.model)
        self.created = int(time.time())
        self.metrics = Metrics(scheduler.state)
        self.uploads = UploadPlaces(settings.max_uploads, shared=bool(settings.keys))
        self.closing = False
        self.failed: Exception | None = None  # why the scheduler did not start

    @property
    def obstacle(self) -> str:
        """Why the server takes no work; empty where it does."""
        if self.closing:
            return "the server is closing: ask again, another one may answer"
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
            raise ApiError(503, self.obstacle, retry_s=5)

    def submit(self, request: requests.Request) -> requests.RequestHandle:
        """Hand in a request, or say why not."""
        self.check_open()
        return self.scheduler.submit(request)

    async def collect(self, handle: requests.RequestHandle, kind: type[T]) -> tuple[str, T]:
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
        task = asyncio.ensure_future(self.service.collect(handle, kind))
        try:
            while not (await asyncio.wait({task}, timeout=0.1))[0]:
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


def sent(data: dict[str, Any], event: str | None = None) -> Sent:
    """Return one server-sent event; ASCII, so that no character can be taken for the end of a line."""
    return {"data": json.dumps(data)} | ({} if event is None else {"event": event})


class EventStream(EventSourceResponse):
    """A request's events as a stream, which gives the request up when it ends, even before its first byte."""

    def __init__(
        self,
        service: Service,
        handle: requests.RequestHandle,
        render: Callable[[requests.Event], Iterable[Sent]],
        opening: Sequence[Sent] = (),
        error: str | None = None,  # name of an event that says what went wrong
    ) -> None:
        self._handle, self._render, self._error = handle, render, error
        self._events = service.events(handle)
        self._first = asyncio.ensure_future(anext(self._events, None))
        self._content = self._sent(opening)
        self.after: Callable[[], Awaitable[object]] | None = None  # what is to be done when it is over
        super().__init__(self._content, ping=KEEP_ALIVE_S, send_timeout=SEND_S, sep="\n")
        self.ping_message_factory = lambda: ServerSentEvent(comment="keep-alive")

    async def peek(self) -> Self:
        """Wait a moment for the first event; raise what went wrong before any came."""
        try:
            await asyncio.wait({self._first}, timeout=PEEK_S)
            if self._first.done():
                self._first.result()
        except BaseException:
            self._first.cancel()
            self._handle.cancel()
            raise
        return self

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the stream to its end, or its client's."""
        try:
            with suppress(SendTimeoutError):
                await super().__call__(scope, receive, send)
        finally:
            self._handle.cancel()
            self._first.cancel()
            with suppress(RuntimeError):  # it is being closed already
                await self._content.aclose()
            if self.after is not None:
                await self.after()

    async def _sent(self, opening: Sequence[Sent]) -> AsyncGenerator[Sent]:
        """Yield what is sent; errors too, since the status has been sent before them."""
        try:
            for one in opening:
                yield one
            event = await self._first
            while event is not None:
                for one in self._render(event):
                    yield one
                event = await anext(self._events, None)
        except Exception as error:
            if not isinstance(error, InfiniPotError):
                errors.log.error("a stream failed", exc_info=error)
            yield sent(errors.body(errors.refusal(error)), self._error)
        finally:
            await self._events.aclose()
