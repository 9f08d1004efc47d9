"""`POST /v1/responses`: the same answers in OpenAI's newer objects, whole or as a stream of their events."""

import secrets
import time
from collections.abc import Iterator
from typing import Any

from fastapi import APIRouter
from starlette.responses import JSONResponse, Response

from infinipot.server.http.objects import usage_object
from infinipot.server.http.responses_schema import ResponsesBody
from infinipot.server.http.service import Caller
from infinipot.server.http.streams import SSE, EventStream, Sent, sent
from infinipot.server.scheduler import requests

router = APIRouter(prefix="/v1", tags=["answers"])
Object = dict[str, Any]


@router.post("/responses", responses={200: {"content": SSE, "description": "The response."}})
async def respond(caller: Caller, asked: ResponsesBody) -> Response:
    """Answer the last item of a conversation of any length; nothing is stored under the response's name."""
    caller.service.check_model(asked.model)
    await caller.require(asked.pot)
    wanted = asked.request(caller.tenant, caller.service.settings.max_tokens)
    handles = await caller.service.submit([wanted])
    made = ResponseObject(caller.service.model, asked)
    if asked.stream:
        opening = [*made.begun()]
        return await EventStream(caller.service, handles, lambda event, _: made.take(event), opening).peek()
    (outcome,) = await caller.outcomes(handles, requests.Answered)
    for event in (*outcome.parts, outcome.end):
        for _ in made.take(event):
            pass
    return JSONResponse(made.object)


class ResponseObject:
    """A response that grows with its request's events, and the stream's own events on the way."""

    def __init__(self, model: str, asked: ResponsesBody) -> None:
        told = asked.model_dump(exclude_none=True, by_alias=True)
        self.object: Object = {
            "id": f"resp_{secrets.token_hex(16)}",
            "object": "response",
            "created_at": int(time.time()),
            "status": "in_progress",
            "error": None,
            "incomplete_details": None,
            "instructions": asked.instructions,
            "max_output_tokens": asked.max_output_tokens,
            "model": model,
            "output": [],
            "parallel_tool_calls": asked.parallel_tool_calls is not False,
            "previous_response_id": None,
            "store": False,
            "temperature": asked.temperature or 0.0,
            "text": told.get("text") or {"format": {"type": "text"}},
            "tool_choice": told.get("tool_choice", "auto"),
            "tools": [{"strict": False, "parameters": {}, **tool} for tool in told.get("tools", ())],
            "top_p": 1.0 if asked.top_p is None else asked.top_p,
            "truncation": "disabled",
            "usage": None,
            "metadata": asked.metadata or {},
        }
        self._number = -1
        self._message: Object | None = None  # the one that is being written

    def begun(self) -> Iterator[Sent]:
        """Yield what a stream begins with."""
        for name in ("response.created", "response.in_progress"):
            yield self._event(name, response=dict(self.object))

    def take(self, event: requests.Event) -> Iterator[Sent]:
        """Take an event of the request; yield those of the stream."""
        if isinstance(event, requests.Piece) and event.text:
            yield from self._text(event.text)
        elif isinstance(event, requests.Call):
            yield from self._close()
            yield from self._call(event)
        elif isinstance(event, requests.Answered):
            if not self.object["output"]:  # an empty answer is a message too
                yield from self._open()
            yield from self._close()
            yield from self._end(event)

    def _text(self, text: str) -> Iterator[Sent]:
        if self._message is None:
            yield from self._open()
        self._part()["text"] += text
        yield self._event("response.output_text.delta", **self._place(), delta=text, logprobs=[])

    def _open(self) -> Iterator[Sent]:
        part: Object = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
        self._message = {"id": f"msg_{secrets.token_hex(16)}", "type": "message", "role": "assistant"}
        self._message |= {"status": "in_progress", "content": []}
        self.object["output"].append(self._message)
        yield self._item("response.output_item.added", self._message)
        self._message["content"].append(part)
        yield self._event("response.content_part.added", **self._place(), part=dict(part))

    def _close(self) -> Iterator[Sent]:
        if self._message is None:
            return
        part, place, message = self._part(), self._place(), self._message
        yield self._event("response.output_text.done", **place, text=part["text"], logprobs=[])
        yield self._event("response.content_part.done", **place, part=part)
        message["status"], self._message = "completed", None
        yield self._item("response.output_item.done", message)

    def _call(self, call: requests.Call) -> Iterator[Sent]:
        item = {"id": f"fc_{secrets.token_hex(16)}", "type": "function_call", "status": "in_progress"}
        item |= {"call_id": f"call_{secrets.token_hex(12)}", "name": call.name, "arguments": ""}
        self.object["output"].append(item)
        yield self._item("response.output_item.added", item)
        place = {"item_id": item["id"], "output_index": len(self.object["output"]) - 1}
        name = "response.function_call_arguments"
        yield self._event(f"{name}.delta", **place, delta=call.arguments)
        yield self._event(f"{name}.done", **place, name=call.name, arguments=call.arguments)
        item |= {"arguments": call.arguments, "status": "completed"}
        yield self._item("response.output_item.done", item)

    def _end(self, end: requests.Answered) -> Iterator[Sent]:
        usage = usage_object([end])
        self.object["usage"] = {
            "input_tokens": usage["prompt_tokens"],
            "input_tokens_details": usage["prompt_tokens_details"],
            "output_tokens": usage["completion_tokens"],
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": usage["total_tokens"],
        }
        self.object |= {"status": "completed", **end.recalled}
        if end.finish == "length":
            self.object |= {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}
        yield self._event(f"response.{self.object['status']}", response=self.object)

    def _part(self) -> Object:
        assert self._message is not None
        part: Object = self._message["content"][0]
        return part

    def _place(self) -> Object:
        assert self._message is not None
        index = len(self.object["output"]) - 1
        return {"item_id": self._message["id"], "output_index": index, "content_index": 0}

    def _item(self, name: str, item: Object) -> Sent:
        return self._event(name, output_index=len(self.object["output"]) - 1, item=item)

    def _event(self, kind: str, /, **data: Any) -> Sent:
        self._number += 1
        return sent({"type": kind, "sequence_number": self._number, **data}, kind)
