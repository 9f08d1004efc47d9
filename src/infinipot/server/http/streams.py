"""Requests' events as a stream of server-sent events, which outlives neither its client nor its requests."""

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, Self

from sse_starlette import EventSourceResponse, ServerSentEvent
from sse_starlette.sse import SendTimeoutError
from starlette.types import Receive, Scope, Send

from infinipot.errors import InfiniPotError
from infinipot.server.http import errors
from infinipot.server.http.service import Service
from infinipot.server.scheduler import requests

KEEP_ALIVE_S = 15
SEND_S = 60.0  # a client that takes nothing for so long is let go
PEEK_S = 1.0  # how long a stream waits for its first event: an error then still has a status of its own
DONE = b"data: [DONE]\n\n"  # the last event of OpenAI's streams
SSE = {"text/event-stream": {"schema": {"type": "string"}}}  # for the OpenAPI document
Sent = bytes  # an event as it is sent


def sent(data: dict[str, Any], event: str | None = None) -> Sent:
    """Return one server-sent event; ASCII, so that no character can be taken for the end of a line."""
    name = "" if event is None else f"event: {event}\n"
    return f"{name}data: {json.dumps(data)}\n\n".encode()


class EventStream(EventSourceResponse):
    """Requests' events as a stream, which gives them up when it ends, even before its first byte."""

    def __init__(
        self,
        service: Service,
        handles: Sequence[requests.RequestHandle],
        render: Callable[[requests.Event, int], Iterable[Sent]],
        opening: Sequence[Sent] = (),
        error: str | None = None,  # name of an event that says what went wrong
    ) -> None:
        self._handles, self._render, self._error = handles, render, error
        self._events = service.merged(handles)
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
            self._give_up()
            raise
        return self

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the stream to its end, or its client's."""
        try:
            with suppress(SendTimeoutError):
                await super().__call__(scope, receive, send)
        finally:
            self._give_up()
            self._first.cancel()
            with suppress(RuntimeError):  # it is being closed already
                await self._content.aclose()
            if self.after is not None:
                await self.after()

    def _give_up(self) -> None:
        for handle in self._handles:
            handle.cancel()

    async def _sent(self, opening: Sequence[Sent]) -> AsyncGenerator[Sent]:
        """Yield what is sent; errors too, since the status has been sent before them."""
        try:
            for one in opening:
                yield one
            found = await self._first
            while found is not None:
                index, event = found
                for one in self._render(event, index):
                    yield one
                found = await anext(self._events, None)
        except Exception as error:  # a stream that has begun can only end with one line
            if not isinstance(error, InfiniPotError):
                errors.log.error("a stream failed", exc_info=error)
            yield sent(errors.body(errors.refusal(error)), self._error)
        finally:
            await self._events.aclose()
