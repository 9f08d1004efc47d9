"""From a route to the scheduler and back, whole or as a stream: who asks, and what if the caller leaves."""

import asyncio
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, Generic, TypeVar, cast

from fastapi import Depends, Request

from infinipot.server.http.errors import ApiError
from infinipot.server.http.limits import Places
from infinipot.server.http.metrics import Metrics, RequestMetrics
from infinipot.server.scheduler import requests
from infinipot.server.scheduler.pot_library import tenant_store
from infinipot.server.scheduler.scheduler import Scheduler
from infinipot.server.settings import Settings
from infinipot.store.base import check
from infinipot.text.files import title

WORDS = 4  # lists of them that are made or waited for; each needs a whole pot, loaded on one thread
T = TypeVar("T")
Numbered = tuple[int, list[requests.Event]]  # of which request, and what came of it


class Service:
    """What every route needs."""

    def __init__(self, settings: Settings, scheduler: Scheduler) -> None:
        self.settings, self.scheduler = settings, scheduler
        self.model = title(settings.model)
        self.created = int(time.time())
        self.metrics = Metrics(scheduler.state)
        shared = bool(settings.keys)
        self.uploads = Places("uploads", settings.max_uploads, shared)
        self.downloads = Places("downloads", settings.max_downloads, shared)
        self.words = Places("lists of words", WORDS, shared)
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

    async def submit(self, several: Sequence[requests.Request]) -> list[requests.RequestHandle]:
        """Hand in requests, all or none, or say why not."""
        self.check_open()
        first = several[0]  # the others differ in their seeds
        grammar = None if isinstance(first, requests.ReadIntoPot) else first.options.generation.grammar
        if grammar is not None:  # of a wild schema it takes a second: away from the event loop
            await asyncio.to_thread(self.scheduler.check_grammar, grammar)
        handles: list[requests.RequestHandle] = []
        try:
            for request in several:
                handles.append(self.scheduler.submit(request))
        except BaseException:
            for handle in handles:
                handle.cancel()
            raise
        return handles

    async def collect(self, handle: requests.RequestHandle, kind: type[T]) -> "Outcome[T]":
        """Return all that comes of a request."""
        parts: list[requests.Piece | requests.Call] = []
        async for batch in self.batches(handle):
            for event in batch:
                if isinstance(event, requests.Piece | requests.Call):
                    parts.append(event)
                elif isinstance(event, kind):
                    return Outcome(parts, event)
        raise requests.FaultError("the request ended early: send it again")

    async def batches(self, handle: requests.RequestHandle) -> AsyncGenerator[list[requests.Event], None]:
        """Yield what comes of a request; a caller who stops listening gives the request up."""
        metrics = RequestMetrics(self.metrics, handle.began)
        try:
            async for batch in handle.batches():
                for event in batch:
                    metrics.see(event)
                yield batch
        finally:
            handle.cancel()

    async def merged(self, handles: Sequence[requests.RequestHandle]) -> AsyncGenerator[Numbered, None]:
        """Yield what comes of several requests as it comes, with the number of the request."""
        sources = [self.batches(handle) for handle in handles]
        if len(sources) == 1:  # nearly all: a task for every token is then what takes most of the time
            try:
                async for batch in sources[0]:
                    yield 0, batch
            finally:
                await sources[0].aclose()
            return
        waiting = {asyncio.ensure_future(anext(one, None)): index for index, one in enumerate(sources)}
        try:
            while waiting:
                done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                for task in sorted(done, key=lambda task: waiting[task]):
                    index, found = waiting.pop(task), task.result()
                    if found is not None:
                        yield index, found
                        waiting[asyncio.ensure_future(anext(sources[index], None))] = index
        finally:
            for task in waiting:
                task.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)
            for source in sources:
                await source.aclose()


@dataclass(frozen=True)
class Outcome(Generic[T]):
    """All that came of a request."""

    parts: Sequence[requests.Piece | requests.Call]
    end: T

    @property
    def text(self) -> str:
        """The answer's text."""
        return "".join(part.text for part in self.parts if isinstance(part, requests.Piece))

    @property
    def calls(self) -> list[requests.Call]:
        """Functions to call."""
        return [part for part in self.parts if isinstance(part, requests.Call)]

    @property
    def scored(self) -> list[requests.Scored]:
        """The tokens, if they were wanted."""
        return [one for part in self.parts if isinstance(part, requests.Piece) for one in part.scored]


class _Caller:
    """The client of one request: its tenant, that tenant's pots, and whether the client is still there."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.service: Service = request.app.state.service
        self.tenant: str = request.state.tenant
        self.pots = tenant_store(self.service.scheduler.store, self.tenant)

    async def require(self, name: str | None) -> None:
        """Refuse a name that no pot of this tenant has; another tenant's pots are not there."""
        if name is not None and check(name) not in await asyncio.to_thread(self.pots.names):
            said = f"there is no pot '{name}': GET /v1/pots lists yours"
            raise ApiError(404, said, param="pot", code="no_pot")

    async def outcomes(self, handles: Sequence[requests.RequestHandle], kind: type[T]) -> list[Outcome[T]]:
        """Return all that comes of requests; give them up when the caller leaves."""
        task = asyncio.gather(*(self.service.collect(handle, kind) for handle in handles))
        try:
            while not (await asyncio.wait({task}, timeout=0.1))[0]:
                if await self.request.is_disconnected():
                    raise ApiError(499, "the client left")
            return task.result()
        finally:
            task.cancel()
            for handle in handles:
                handle.cancel()
            with suppress(BaseException):
                await task


async def _service(request: Request) -> Service:
    return cast("Service", request.app.state.service)


async def _caller(request: Request) -> _Caller:
    return _Caller(request)


Served = Annotated[Service, Depends(_service)]
Caller = Annotated[_Caller, Depends(_caller)]
