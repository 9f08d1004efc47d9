"""A request's events as a stream: comments keep the line open, and a caller that leaves frees its slot."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from contextlib import suppress
from typing import Any

from sse_starlette import EventSourceResponse, ServerSentEvent
from sse_starlette.sse import SendTimeoutError
from starlette.types import Receive, Scope, Send

from infinipot.errors import InfiniPotError
from infinipot.server.http import errors
from infinipot.server.http.service import Service
from infinipot.server.scheduler.requests import Event, RequestHandle

KEEP_ALIVE_S = 15
SEND_S = 60.0  # a client that takes nothing for so long is let go
PEEK_S = 1.0  # how long a stream waits for its first event: an error then still has a status of its own

SSE = {"text/event-stream": {"schema": {"type": "string"}}}  # for the OpenAPI document

Sent = dict[str, str]  # "data", and "event" where it has a name
First = asyncio.Future[Event | None]
Render = Callable[[Event], Iterable[Sent]]


def sent(data: dict[str, Any], event: str | None = None) -> Sent:
    """Return one server-sent event; ASCII, so that no character can be taken for the end of a line."""
    return {"data": json.dumps(data)} | ({} if event is None else {"event": event})


async def stream(
    service: Service, handle: RequestHandle, render: Render, opening: list[Sent], error: str | None = None
) -> EventStream:
    """Return a request's events as a stream after its opening, or raise what went wrong before any came.

    `error` is the name of an event that says what went wrong later.
    """
    events = service.events(handle)
    first: First = asyncio.ensure_future(anext(events, None))
    try:
        await asyncio.wait({first}, timeout=PEEK_S)
        if first.done():
            first.result()
    except BaseException:
        first.cancel()
        handle.cancel()
        raise
    return EventStream(_content(opening, error, first, events, render), handle, first)


async def _content(
    opening: list[Sent], error_name: str | None, first: First, events: AsyncGenerator[Event], render: Render
) -> AsyncGenerator[Sent]:
    """Yield what is sent; errors too, since the status has been sent before them."""
    try:
        for one in opening:
            yield one
        event = await first
        while event is not None:
            for one in render(event):
                yield one
            event = await anext(events, None)
    except Exception as error:
        if not isinstance(error, InfiniPotError):
            errors.log.error("a stream failed", exc_info=error)
        yield sent(errors.body(errors.refusal(error)), error_name)
    finally:
        await events.aclose()


class EventStream(EventSourceResponse):
    """A stream that gives its request up when the stream ends, even before its first byte was sent."""

    def __init__(self, content: AsyncGenerator[Sent, None], handle: RequestHandle, first: First) -> None:
        super().__init__(
            content,
            ping=KEEP_ALIVE_S,
            ping_message_factory=lambda: ServerSentEvent(comment="keep-alive"),
            send_timeout=SEND_S,
            sep="\n",
        )
        self._content, self._handle, self._first = content, handle, first
        self.after: Callable[[], Awaitable[object]] | None = None  # what is to be done when it is over

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
