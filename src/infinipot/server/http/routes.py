"""How the server is and what it serves; and answers, whole or streamed, in OpenAI's shapes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

from fastapi import APIRouter
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.responses import JSONResponse, Response

from infinipot.server.http.schema import Answer, AnswerBody, ChatBody, CompletionBody, model_object
from infinipot.server.http.service import Caller, Served
from infinipot.server.http.sse import SSE, Sent, sent, stream
from infinipot.server.scheduler.requests import (
    Answered,
    ChatRequest,
    CompletionRequest,
    Event,
    Piece,
    Reading,
)

router = APIRouter(tags=["server"])
answers = APIRouter(prefix="/v1", tags=["answers"])
UNAVAILABLE: dict[int | str, dict[str, Any]] = {503: {"description": "Not now."}}


@router.get("/health", responses=UNAVAILABLE)
async def health(service: Served) -> Response:
    """Say whether the server works; the one route that needs no key."""
    if service.dead:
        return JSONResponse({"status": "dead", "reason": "the worker died; the log says why"}, 503)
    return JSONResponse({"status": "ok"})


@router.get("/ready", responses=UNAVAILABLE)
async def ready(service: Served) -> Response:
    """Say whether work is taken now."""
    if service.obstacle:
        status = {"status": "not ready", "reason": service.obstacle}
        return JSONResponse(status, 503, {"Retry-After": "5"})
    return JSONResponse({"status": "ready"})


@router.get("/metrics", response_class=Response)
async def metrics(service: Served) -> Response:
    """Return numbers for Prometheus."""
    return Response(await asyncio.to_thread(service.metrics.text), media_type=CONTENT_TYPE_LATEST)


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
    return await _answer(caller, ChatRequest(caller.tenant, messages, options, asked.pot, asked.keep), asked)


@answers.post("/completions", responses={200: {"content": SSE, "description": "The text's continuation."}})
async def completions(caller: Caller, asked: CompletionBody) -> Response:
    """Go on from a text of any length."""
    caller.service.check_model(asked.model)
    options = asked.options(caller.service.settings.max_tokens)
    return await _answer(caller, CompletionRequest(caller.tenant, asked.text, options), asked)


async def _answer(caller: Caller, wanted: ChatRequest | CompletionRequest, asked: AnswerBody) -> Response:
    answer = Answer(caller.service.model, chat=isinstance(wanted, ChatRequest))
    handle = caller.service.submit(wanted)
    if not asked.stream:
        return JSONResponse(answer.whole(*await caller.outcome(handle, Answered)))
    wants_usage = asked.stream_options is not None and asked.stream_options.include_usage
    usage = {"usage": None} if wants_usage else {}

    def render(event: Event) -> Iterator[Sent]:
        if isinstance(event, Reading) and asked.return_progress:
            yield sent(answer.progress(event) | usage)
        elif isinstance(event, Piece):
            yield sent(answer.chunk(event.text) | usage)
        elif isinstance(event, Answered):
            yield sent(answer.chunk(finish=event.finish) | usage)
            if wants_usage:
                yield sent(answer.usage(event.usage))
            yield {"data": "[DONE]"}

    opening = [sent(answer.chunk("", role="assistant") | usage)] if answer.chat else []
    return await stream(caller.service, handle, render, opening)
