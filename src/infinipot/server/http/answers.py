"""Answers, whole or streamed, in OpenAI's shapes: chat and completions."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

from fastapi import APIRouter
from starlette.responses import JSONResponse, Response

from infinipot.server.http.objects import Answer
from infinipot.server.http.schema import AnswerBody, ChatBody, CompletionBody
from infinipot.server.http.service import Caller
from infinipot.server.http.streams import DONE, SSE, EventStream, Sent, sent
from infinipot.server.scheduler import requests

router = APIRouter(prefix="/v1", tags=["answers"])
_TEXT = "QzTextQz"  # in the place of a piece's text


@router.post("/chat/completions", responses={200: {"content": SSE, "description": "The answer."}})
async def chat(caller: Caller, asked: ChatBody) -> Response:
    """Answer the last message of a conversation of any length, about a kept pot if one is named."""
    caller.service.check_model(asked.model)
    await caller.require(asked.pot)
    return await _answer(caller, asked, asked.requests(caller.tenant, caller.service.settings.max_tokens))


@router.post("/completions", responses={200: {"content": SSE, "description": "The text's continuation."}})
async def completions(caller: Caller, asked: CompletionBody) -> Response:
    """Go on from a text of any length."""
    caller.service.check_model(asked.model)
    text = asked.prompt if isinstance(asked.prompt, str) else asked.prompt[0]
    every = asked.wanted(caller.service.settings.max_tokens)
    wanted = [requests.CompletionRequest(caller.tenant, text, one) for one in every]
    return await _answer(caller, asked, wanted)


async def _answer(caller: Caller, asked: AnswerBody, wanted: Sequence[requests.Request]) -> Response:
    answer = Answer(caller.service.model, isinstance(asked, ChatBody), scored=asked.scores() is not None)
    handles = await caller.service.submit(wanted)
    if not asked.stream:
        return JSONResponse(answer.whole(await caller.outcomes(handles, requests.Answered)))
    wants_usage = asked.stream_options is not None and asked.stream_options.include_usage
    usage: dict[str, Any] = {"usage": None} if wants_usage else {}
    pieces, ends = Pieces(answer, usage), list[requests.Answered]()

    def render(event: requests.Event, index: int) -> Iterator[Sent]:
        if isinstance(event, requests.Reading) and asked.return_progress:
            yield sent(answer.progress(event, index) | usage)
        elif isinstance(event, requests.Queued) and asked.return_progress:
            yield sent(answer.queued(event, index) | usage)
        elif isinstance(event, requests.Piece):
            yield pieces.sent(event, index)
        elif isinstance(event, requests.Call):
            yield sent(answer.call(event, index) | usage)
        elif isinstance(event, requests.Answered):
            ends.append(event)
            yield sent(answer.chunk(index=index, finish=event.finish) | usage | event.recalled)
            if len(ends) == len(handles):
                yield from [sent(answer.usage(ends))] if wants_usage else []
                yield DONE

    numbers = range(len(handles)) if answer.chat else ()
    opening = [sent(answer.chunk("", index, role="assistant") | usage) for index in numbers]
    return await EventStream(caller.service, handles, render, opening).peek()


class Pieces:
    """Pieces of an answer as they are sent; what is the same around the text of all is written once."""

    def __init__(self, answer: Answer, usage: dict[str, Any]) -> None:
        self._answer, self._usage = answer, usage
        self._around: dict[int, tuple[Sent, Sent]] = {}  # of each answer: what is before and after

    def sent(self, piece: requests.Piece, index: int) -> Sent:
        """Return a piece as an event."""
        if piece.scored:
            return sent(self._answer.chunk(piece.text, index, scored=piece.scored) | self._usage)
        if index not in self._around:
            whole = sent(self._answer.chunk(_TEXT, index) | self._usage)
            before, _, after = whole.rpartition(json.dumps(_TEXT).encode())
            self._around[index] = before, after
        before, after = self._around[index]
        return b"".join((before, json.dumps(piece.text).encode(), after))
