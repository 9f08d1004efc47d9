"""How the server is and what it serves; answers, whole or streamed, in OpenAI's shapes; and the page."""

import asyncio
import html
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fastapi import APIRouter, Request
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.responses import FileResponse, HTMLResponse, JSONResponse, Response

from infinipot.server.http.errors import ApiError
from infinipot.server.http.schema import Answer, AnswerBody, ChatBody, CompletionBody, model_object
from infinipot.server.http.service import SSE, Caller, EventStream, Sent, Served, sent
from infinipot.server.scheduler import requests

router = APIRouter(tags=["server"])
answers = APIRouter(prefix="/v1", tags=["answers"])
page = APIRouter(include_in_schema=False)
FOLDER = Path(__file__).parents[1] / "page"
TYPES = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
UNAVAILABLE: dict[int | str, dict[str, Any]] = {503: {"description": "Not now."}}


@router.get("/health", responses=UNAVAILABLE)
async def health(service: Served) -> Response:
    """Say whether the server works; needs no key."""
    if service.dead:
        return JSONResponse({"status": "dead", "reason": "the worker died; the log says why"}, 503)
    return JSONResponse({"status": "ok"})


@router.get("/ready", responses=UNAVAILABLE)
async def ready(service: Served) -> Response:
    """Say whether work is taken now; needs no key."""
    if service.obstacle:
        status = {"status": "not ready", "reason": service.obstacle}
        return JSONResponse(status, 503, {"Retry-After": "5"})
    return JSONResponse({"status": "ready"})


@router.get("/metrics", response_class=Response)
async def metrics(service: Served) -> Response:
    """Return numbers for Prometheus."""
    text = await asyncio.to_thread(generate_latest, service.metrics.registry)
    return Response(text, media_type=CONTENT_TYPE_LATEST)


@router.get("/v1/state")
async def state(service: Served) -> dict[str, Any]:
    """Return what the slots are doing: numbers only, no tenant's data."""
    return {**await asyncio.to_thread(service.scheduler.state), "model": service.model}


@router.get("/v1/models")
async def models(service: Served) -> dict[str, Any]:
    """List the one model that is served."""
    return {"object": "list", "data": [model_object(service.model, service.created)]}


@router.get("/v1/models/{name:path}")
async def model(service: Served, name: str) -> dict[str, Any]:
    """Show a model."""
    service.check_model(name)
    return model_object(service.model, service.created)


@answers.post("/chat/completions", responses={200: {"content": SSE, "description": "The answer."}})
async def chat(caller: Caller, asked: ChatBody) -> Response:
    """Answer the last message of a conversation of any length, about a kept pot if one is named."""
    caller.service.check_model(asked.model)
    if asked.pot is not None:
        await caller.require(asked.pot)
    messages = [message.plain() for message in asked.messages]
    options = asked.options(caller.service.settings.max_tokens)
    wanted = requests.ChatRequest(caller.tenant, messages, options, asked.pot, asked.keep)
    return await _answer(caller, asked, wanted)


@answers.post("/completions", responses={200: {"content": SSE, "description": "The text's continuation."}})
async def completions(caller: Caller, asked: CompletionBody) -> Response:
    """Go on from a text of any length."""
    caller.service.check_model(asked.model)
    options = asked.options(caller.service.settings.max_tokens)
    text = asked.prompt if isinstance(asked.prompt, str) else asked.prompt[0]
    return await _answer(caller, asked, requests.CompletionRequest(caller.tenant, text, options))


async def _answer(caller: Caller, asked: AnswerBody, wanted: requests.Request) -> Response:
    answer = Answer(caller.service.model, chat=isinstance(asked, ChatBody))
    handle = caller.service.submit(wanted)
    if not asked.stream:
        return JSONResponse(answer.whole(*await caller.outcome(handle, requests.Answered)))
    wants_usage = asked.stream_options is not None and asked.stream_options.include_usage
    usage = {"usage": None} if wants_usage else {}

    def render(event: requests.Event) -> Iterator[Sent]:
        if isinstance(event, requests.Reading) and asked.return_progress:
            yield sent(answer.progress(event) | usage)
        elif isinstance(event, requests.Piece):
            yield sent(answer.chunk(event.text) | usage)
        elif isinstance(event, requests.Answered):
            yield sent(answer.chunk(finish=event.finish) | usage | event.recalled)
            if wants_usage:
                yield sent(answer.usage(event))
            yield {"data": "[DONE]"}

    opening = [sent(answer.chunk("", role="assistant") | usage)] if answer.chat else []
    return await EventStream(caller.service, handle, render, opening).peek()


@page.get("/")
async def index() -> Response:
    """Return the page."""
    return await asset("index.html")


@page.get("/page/{name}")
async def asset(name: str) -> Response:
    """Return one of the page's files by its name in the folder's own list: no name can lead elsewhere."""
    known = {path.name: path for path in FOLDER.iterdir() if path.suffix in TYPES}
    if name not in known:
        raise ApiError(404, "the page has no such file")
    return FileResponse(known[name], media_type=TYPES[known[name].suffix])


@page.get("/docs")
async def docs(request: Request) -> Response:
    """Return every route in one plain list: HTML that needs neither style nor script."""
    document: dict[str, Any] = request.app.openapi()
    rows = "".join(
        f"<dt><code>{html.escape(method.upper())} {html.escape(path)}</code></dt>"
        f"<dd>{html.escape(route.get('description') or route.get('summary', ''))}</dd>"
        for path, methods in document["paths"].items()
        for method, route in methods.items()
    )
    title = html.escape(document["info"]["title"])
    return HTMLResponse(
        f"<!doctype html><html lang=en><meta charset=utf-8><title>{title}</title>"
        f"<meta name=viewport content='width=device-width'><h1>{title}</h1>"
        "<p>Every field: <a href=openapi.json>openapi.json</a>, for any OpenAPI viewer. "
        f"The page: <a href='.'>here</a>.</p><dl>{rows}</dl></html>"
    )
