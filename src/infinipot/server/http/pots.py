"""`/v1/pots`: texts of any size into kept pots, and kept pots as files. A tenant sees its own only."""

import asyncio
import json
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from dataclasses import asdict
from functools import partial
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Depends, Query, Request
from fastapi import Path as InPath
from starlette.responses import JSONResponse, Response

from infinipot.errors import StoreError
from infinipot.server.http.errors import ApiError
from infinipot.server.http.objects import pot_object, queue_object, reading_object
from infinipot.server.http.service import Caller
from infinipot.server.http.streams import SSE, EventStream, Sent, sent
from infinipot.server.http.uploads import UPLOAD, exported, received
from infinipot.server.scheduler.requests import Event, Kept, Queued, Reading, ReadIntoPot
from infinipot.store import Card, PotStore
from infinipot.store.base import check

router = APIRouter(prefix="/v1/pots", tags=["pots"])
T = TypeVar("T")
Name = Annotated[str, InPath(max_length=256, description="Up to 64 of A-Z a-z 0-9 . _ -")]
Title = Annotated[str | None, Query(max_length=256, description="For people; the name otherwise.")]
Replace = Annotated[bool, Query(description="Replace a pot of that name.")]
Catalyst = Annotated[str, Query(min_length=1, max_length=4096)]
Streamed = Annotated[bool, Query(alias="stream", description="Say how far reading is, as server-sent events")]
TEXT = {"requestBody": {"required": True, "content": {"text/plain": {"schema": {"type": "string"}}}}}
TYPES = (  # beside text/ what is taken in; what a body is, its first bytes tell
    *("application/octet-stream", "application/json", "application/pdf", "application/xhtml+xml"),
    *("application/epub+zip", "application/vnd.openxmlformats-officedocument.wordprocessingml.document"),
)
FILE_BODY = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}
FILE = {"requestBody": {"required": True, "content": FILE_BODY}}
MADE: dict[int | str, dict[str, Any]] = {201: {"description": "The pot.", "content": SSE}}


async def _card(caller: Caller, name: Name) -> Card:
    await caller.require(name)
    return await asyncio.to_thread(caller.pots.card, name)


async def _new(caller: Caller, name: Name, replace: Replace = False) -> str:
    """Refuse a name that is taken, before the upload is taken in."""
    if check(name) in await asyncio.to_thread(caller.pots.names) and not replace:
        said = f"there is a pot '{name}' already: append to it, add ?replace=true, or choose another name"
        raise ApiError(409, said, param="name", code="pot_exists")
    return name


KnownCard = Annotated[Card, Depends(_card)]
NewName = Annotated[str, Depends(_new)]


@router.get("")
async def listed(caller: Caller) -> dict[str, Any]:
    """List your pots."""
    cards = await asyncio.to_thread(caller.pots.cards)
    return {"object": "list", "data": [pot_object(name, card) for name, card in cards.items()]}


@router.post("/{name}", status_code=201, responses=MADE, openapi_extra=TEXT)
async def make(
    caller: Caller,
    name: NewName,
    title: Title = None,
    replace: Replace = False,
    catalyst: Catalyst = "general",
    streamed: Streamed = False,
) -> Response:
    """Read a text, the body as it is, into a new pot."""
    options = {"title": title or name, "replace": replace, "catalyst": catalyst}
    return await _read(caller, streamed, name=name, **options)


@router.post("/{name}/append", status_code=201, responses=MADE, openapi_extra=TEXT)
async def append(
    caller: Caller, name: Name, card: KnownCard, title: Title = None, streamed: Streamed = False
) -> Response:
    """Read more text into a pot."""
    return await _read(caller, streamed, name=name, title=title or card.title, append=True)


@router.get("/{name}")
async def show(name: Name, card: KnownCard) -> dict[str, Any]:
    """Show a pot."""
    return pot_object(name, card)


@router.delete("/{name}")
async def delete(caller: Caller, name: Name) -> dict[str, Any]:
    """Delete a pot."""
    await caller.require(name)
    await asyncio.to_thread(_now, caller.pots, name, lambda: caller.pots.remove(name))
    return {"id": name, "object": "pot", "deleted": True}


@router.get("/{name}/words", response_class=JSONResponse)
async def words(caller: Caller, name: Name, card: KnownCard) -> Response:
    """Show the words a pot still holds, and how many of its heads hold them."""
    service = caller.service
    service.check_open()
    with service.words.place(caller.tenant):
        looking = asyncio.wrap_future(service.scheduler.words(caller.tenant, name))
        await asyncio.wait({looking})
        if looking.cancelled():
            service.check_open()  # it is not any more

        def told() -> str:  # of a large pot it takes seconds: away from the event loop
            words = [asdict(word) for word in looking.result()]
            return json.dumps({"words": words, "tokens_read": card.tokens_read, "held": len(words)})

        return Response(await asyncio.to_thread(told), media_type="application/json")


@router.get("/{name}/file", response_class=Response, responses={200: {"content": FILE_BODY}})
async def download(caller: Caller, name: Name, card: KnownCard) -> Response:  # noqa: ARG001  it is there
    """Export a pot as a file that another server, or `infinipot pots import`, takes in."""
    return await exported(caller, name)


@router.put("/{name}/file", status_code=201, openapi_extra=FILE)
async def bring(caller: Caller, name: NewName, replace: Replace = False) -> dict[str, Any]:
    """Import a pot; it gets its name only when all of it was checked."""
    async with received(caller.request, caller.service, text=False) as upload:
        work = partial(caller.pots.bring, upload.path, name, replace)
        try:
            card = await asyncio.to_thread(_now, caller.pots, name, work)
        except StoreError as error:
            if isinstance(error.__cause__, OSError) or str(upload.path) not in str(error):
                raise  # of the store, not of what was sent
            said = str(error).replace(f"'{upload.path}'", UPLOAD)
            raise ApiError(400, said, code="not_a_pot") from error
    return pot_object(name, card)


async def _read(caller: Caller, streamed: bool, **wanted: Any) -> Response:
    """Take the text in, have it read, and answer with the pot, or with a stream that ends in it."""
    request, service = caller.request, caller.service
    _check_type(request)
    service.check_open()  # before gigabytes are sent in vain
    async with AsyncExitStack() as stack:
        text = await stack.enter_async_context(received(request, service, text=True))
        wanted |= {"file": text.path, "sha256": text.digest.hexdigest(), "bytes": text.bytes}
        wanted |= {"kind": text.kind, "parts": text.parts}
        handles = await service.submit([ReadIntoPot(caller.tenant, **wanted)])
        if not streamed and "text/event-stream" not in request.headers.get("accept", ""):
            kept = (await caller.outcomes(handles, Kept))[0].end
            return JSONResponse(pot_object(kept.name, kept.card), 201)

        def render(event: Event, _: int) -> Iterator[Sent]:
            if isinstance(event, Queued):
                yield sent(queue_object(event), "queued")
            elif isinstance(event, Reading):
                yield sent(reading_object(event, text.bytes), "progress")
            elif isinstance(event, Kept):
                yield sent(pot_object(event.name, event.card), "done")

        answer = await EventStream(service, handles, render, error="error").peek()
        answer.status_code, answer.after = 201, stack.pop_all().aclose  # the file is still being read
        return answer


def _check_type(request: Request) -> None:
    """Refuse what is not a text as it is: a form, or another character set."""
    kind, _, rest = request.headers.get("content-type", "").lower().partition(";")
    kind, charset = kind.strip(), rest.partition("charset=")[2].strip(' "')
    if kind and not kind.startswith("text/") and kind not in TYPES:
        raise ApiError(415, "send the text itself as the body, with `Content-Type: text/plain`")
    if charset not in ("", "utf-8", "utf8", "us-ascii", "ascii"):
        raise ApiError(415, "send the text as UTF-8: convert it with `iconv -t utf-8`")


def _now(pots: PotStore, name: str, work: Callable[[], T]) -> T:
    """Write, or say at once that another writer does: waiting for a lock would keep a thread from others."""
    with pots.lock(name, wait_s=0):
        return work()
