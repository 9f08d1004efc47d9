"""`/v1/chat/completions` and `/v1/completions`: whole or streamed, in OpenAI's shapes."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse, Response

from infinipot.server.objects import Answer
from infinipot.server.orders import Answered, Continue, Event, FaultError, Order, Piece, Reading, Talk
from infinipot.server.schema import AnswerRequest, ChatRequest, CompletionRequest
from infinipot.server.service import Service, require, tenant, unless_gone
from infinipot.server.streams import SSE, Said, said, stream, told

router = APIRouter(prefix="/v1", tags=["answers"])


@router.post("/chat/completions", responses={200: {"content": SSE, "description": "The answer."}})
async def chat(request: Request, asked: ChatRequest) -> Response:
    """Answer the last message of a conversation of any length, about a kept pot if one is named."""
    service = Service.of(request)
    service.check_model(asked.model)
    if asked.pot is not None:
        await require(service.pots(request), asked.pot)
    order = Talk(
        tenant(request),
        [message.plain() for message in asked.messages],
        asked.options(service.settings.max_tokens),
        asked.pot,
        asked.keep,
    )
    return await _answered(request, order, asked, Answer(service.model, chat=True))


@router.post("/completions", responses={200: {"content": SSE, "description": "The text's continuation."}})
async def completions(request: Request, asked: CompletionRequest) -> Response:
    """Go on from a text of any length."""
    service = Service.of(request)
    service.check_model(asked.model)
    order = Continue(tenant(request), asked.text, asked.options(service.settings.max_tokens))
    return await _answered(request, order, asked, Answer(service.model, chat=False))


async def _answered(request: Request, order: Order, asked: AnswerRequest, answer: Answer) -> Response:
    service = Service.of(request)
    ticket = service.submit(order)
    if asked.stream:
        return await stream(service, ticket, lambda events: _chunks(events, asked, answer))
    return JSONResponse(await unless_gone(request, _whole(service.events(ticket), answer)))


async def _whole(events: AsyncIterator[Event], answer: Answer) -> dict[str, Any]:
    text: list[str] = []
    async for event in events:
        if isinstance(event, Piece):
            text.append(event.text)
        elif isinstance(event, Answered):
            return answer.whole("".join(text), event)
    raise FaultError("the answer ended early: ask again")


async def _chunks(
    events: AsyncIterator[Event], asked: AnswerRequest, answer: Answer
) -> AsyncGenerator[Said, None]:
    """An answer as the data of a stream; its errors too, since the status has been sent."""
    usage = {"usage": None} if asked.wants_usage else {}
    if answer.chat:
        yield said({**answer.chunk("", first=True), **usage})
    try:
        async for event in events:
            if isinstance(event, Reading) and asked.return_progress:
                yield said({**answer.progress(event), **usage})
            elif isinstance(event, Piece):
                yield said({**answer.chunk(event.text), **usage})
            elif isinstance(event, Answered):
                yield said({**answer.chunk(finish=event.finish), **usage})
                if asked.wants_usage:
                    yield said(answer.usage(event.usage))
                yield {"data": "[DONE]"}
                return
        raise FaultError("the answer ended early: ask again")
    except Exception as error:
        yield said(told(error))
