"""`/v1/pots`: texts of any size into kept pots, and kept pots as files. A tenant sees its own only."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AsyncExitStack
from dataclasses import asdict
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Query, Request
from fastapi import Path as InPath
from starlette.responses import JSONResponse, Response

from infinipot.errors import StoreError
from infinipot.server.errors import ApiError
from infinipot.server.objects import pot_object, reading_object
from infinipot.server.orders import Brew, Event, FaultError, Kept, Reading
from infinipot.server.service import Service, require, tenant, unless_gone
from infinipot.server.spool import UPLOAD, exported, spooled
from infinipot.server.streams import SSE, Said, said, stream, told
from infinipot.store import Card, PotStore
from infinipot.store.names import check

router = APIRouter(prefix="/v1/pots", tags=["pots"])
T = TypeVar("T")

Name = Annotated[str, InPath(max_length=256, description="Up to 64 of A-Z a-z 0-9 . _ -")]
Title = Annotated[str | None, Query(max_length=256, description="For people; the name otherwise.")]
Replace = Annotated[bool, Query(description="Replace a pot of that name.")]
Catalyst = Annotated[str, Query(min_length=1, max_length=4096)]
Streamed = Annotated[
    bool, Query(alias="stream", description="Say how far reading is, as server-sent events.")
]

TEXT = {"requestBody": {"required": True, "content": {"text/plain": {"schema": {"type": "string"}}}}}
FILE_BODY = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}
MADE: dict[int | str, dict[str, Any]] = {201: {"description": "The pot.", "content": SSE}}


@router.get("")
async def pots(request: Request) -> dict[str, Any]:
    """List your pots."""
    cards = await asyncio.to_thread(Service.of(request).pots(request).cards)
    return {"object": "list", "data": [pot_object(name, card) for name, card in cards.items()]}


@router.post("/{name}", status_code=201, responses=MADE, openapi_extra=TEXT)
async def make(
    request: Request,
    name: Name,
    title: Title = None,
    replace: Replace = False,
    catalyst: Catalyst = "general",
    streamed: Streamed = False,
) -> Response:
    """Read a text, the body as it is, into a new pot."""
    await _check_new(Service.of(request).pots(request), name, replace)
    brew = {"replace": replace, "catalyst": catalyst, "title": title or name}
    return await _brewed(request, name, streamed, brew)


@router.post("/{name}/append", status_code=201, responses=MADE, openapi_extra=TEXT)
async def append(request: Request, name: Name, title: Title = None, streamed: Streamed = False) -> Response:
    """Read more text into a pot."""
    card = await _card(Service.of(request).pots(request), name)
    brew = {"append": True, "title": title or card.title}
    return await _brewed(request, name, streamed, brew)


@router.get("/{name}")
async def show(request: Request, name: Name) -> dict[str, Any]:
    """Show a pot."""
    return pot_object(name, await _card(Service.of(request).pots(request), name))


@router.delete("/{name}")
async def delete(request: Request, name: Name) -> dict[str, Any]:
    """Delete a pot."""
    store = Service.of(request).pots(request)
    await require(store, name)
    await asyncio.to_thread(_now, store, name, lambda: store.remove(name))
    return {"id": name, "object": "pot", "deleted": True}


@router.get("/{name}/words", response_class=JSONResponse)
async def words(request: Request, name: Name) -> Response:
    """Show the words a pot still holds, and how many of its heads hold them."""
    service = Service.of(request)
    card = await _card(service.pots(request), name)
    who = tenant(request)

    def told() -> str:  # of a large pot it takes seconds: away from the event loop
        found = [asdict(word) for word in service.kitchen.words(who, name)]
        return json.dumps({"words": found, "tokens_read": card.tokens_read, "held": len(found)})

    return Response(await asyncio.to_thread(told), media_type="application/json")


@router.get("/{name}/file", response_class=Response, responses={200: {"content": FILE_BODY}})
async def download(request: Request, name: Name) -> Response:
    """Export a pot as a file that another server, or `infinipot pots import`, takes in."""
    service = Service.of(request)
    store = service.pots(request)
    await _card(store, name)
    return await exported(store, name, service.settings.spool)


@router.put(
    "/{name}/file",
    status_code=201,
    openapi_extra={"requestBody": {"required": True, "content": FILE_BODY}},
)
async def bring(request: Request, name: Name, replace: Replace = False) -> dict[str, Any]:
    """Import a pot; it gets its name only when all of it was checked."""
    store = Service.of(request).pots(request)
    await _check_new(store, name, replace)
    async with spooled(request, text=False) as upload:
        try:
            card = await asyncio.to_thread(_now, store, name, lambda: store.bring(upload.path, name, replace))
        except StoreError as error:
            if isinstance(error.__cause__, OSError) or str(upload.path) not in str(error):
                raise  # of the store, not of what was sent
            said = str(error).replace(f"'{upload.path}'", UPLOAD)
            raise ApiError(400, said, code="not_a_pot") from error
    return pot_object(name, card)


async def _brewed(request: Request, name: str, streamed: bool, brew: dict[str, Any]) -> Response:
    """Take the text in, have it read, and answer with the pot, or with a stream that ends in it."""
    _check_type(request)
    service = Service.of(request)
    service.check_open()  # before gigabytes are sent in vain
    async with AsyncExitStack() as stack:
        text = await stack.enter_async_context(spooled(request, text=True))
        order = Brew(tenant(request), name, text.path, sha256=text.sha256, bytes=text.bytes, **brew)
        ticket = service.submit(order)
        if streamed or "text/event-stream" in request.headers.get("accept", ""):
            answer = await stream(service, ticket, lambda events: _steps(events, text.bytes))
            answer.status_code, answer.after = 201, stack.pop_all().aclose  # the kitchen still reads the file
            return answer
        return JSONResponse(await unless_gone(request, _kept(service.events(ticket))), 201)


async def _kept(events: AsyncIterator[Event]) -> dict[str, Any]:
    async for event in events:
        if isinstance(event, Kept):
            return pot_object(event.name, event.card)
    raise FaultError("reading ended early: send the text again")


async def _steps(events: AsyncIterator[Event], bytes_total: int) -> AsyncGenerator[Said, None]:
    try:
        async for event in events:
            if isinstance(event, Reading):
                yield said(reading_object(event, bytes_total), "progress")
            elif isinstance(event, Kept):
                yield said(pot_object(event.name, event.card), "done")
                return
        raise FaultError("reading ended early: send the text again")
    except Exception as error:
        yield said(told(error), "error")


def _check_type(request: Request) -> None:
    """Refuse what is not a text as it is: a form, or another character set."""
    kind, _, rest = request.headers.get("content-type", "").lower().partition(";")
    kind, charset = kind.strip(), rest.partition("charset=")[2].strip(' "')
    if kind and not kind.startswith("text/") and kind not in ("application/octet-stream", "application/json"):
        raise ApiError(415, "send the text itself as the body, with `Content-Type: text/plain`")
    if charset not in ("", "utf-8", "utf8", "us-ascii", "ascii"):
        raise ApiError(415, "send the text as UTF-8: convert it with `iconv -t utf-8`")


def _now(store: PotStore, name: str, work: Callable[[], T]) -> T:
    """Write, or say at once that somebody else does: whoever waits for a lock keeps a thread from others."""
    with store.lock(name, wait_s=0):
        return work()


async def _card(store: PotStore, name: str) -> Card:
    await require(store, name)
    return await asyncio.to_thread(store.card, name)


async def _check_new(store: PotStore, name: str, replace: bool) -> None:
    """Refuse a name that is taken, before the upload is taken in."""
    if check(name) in await asyncio.to_thread(store.names) and not replace:
        said = f"there is a pot '{name}' already: append to it, add ?replace=true, or choose another name"
        raise ApiError(409, said, param="name", code="pot_exists")
