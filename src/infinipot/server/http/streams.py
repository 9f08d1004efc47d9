"""Requests' events as a stream of server-sent events, which outlives neither its client nor its requests."""

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, Self

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from infinipot.errors import InfiniPotError
from infinipot.server.http import errors
from infinipot.server.http.service import Service
from infinipot.server.scheduler import requests

KEEP_ALIVE_S = 15.0
SEND_S = 60.0  # a client that takes nothing for so long is let go
PEEK_S = 1.0  # how long a stream waits for its first event: an error then still has a status of its own
DONE = b"data: [DONE]\n\n"  # the last event of OpenAI's streams
PING = b": keep-alive\n\n"
SSE = {"text/event-stream": {"schema": {"type": "string"}}}  # for the OpenAPI document
HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}  # a proxy passes each event on at once
Sent = bytes  # an event as it is sent


def sent(data: dict[str, Any], event: str | None = None) -> Sent:
    """Return one server-sent event; ASCII, so that no character can be taken for the end of a line."""
    name = "" if event is None else f"event: {event}\n"
    return f"{name}data: {json.dumps(data)}\n\n".encode()


class EventStream(Response):
    """Requests' events as a stream, which gives them up when it ends, even before its first byte.

    Events that came together are sent together: a stream is a few tasks and calls, so that one process has
    time for many.
    """

    media_type = "text/event-stream"

    def __init__(
        self,
        service: Service,
        handles: Sequence[requests.RequestHandle],
        render: Callable[[requests.Event, int], Iterable[Sent]],
        opening: Sequence[Sent] = (),
        error: str | None = None,  # name of an event that says what went wrong
    ) -> None:
        self._handles, self._render, self._error = handles, render, error
        self._content = self._sent(b"".join(opening), service.merged(handles))
        self.after: Callable[[], Awaitable[object]] | None = None  # what is to be done when it is over
        self.status_code, self.background = 200, None
        self.init_headers(HEADERS)

    async def peek(self) -> Self:
        """Wait a moment for the first event; raise what went wrong before any came."""
        try:
            await self._handles[0].peek(PEEK_S)
        except BaseException:
            self._give_up()
            raise
        return self

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        """Send the stream to its end, or its client's."""
        work = [asyncio.ensure_future(self._send(send)), asyncio.ensure_future(self._watch(receive, send))]
        try:
            done, _ = await asyncio.wait(work, return_when=asyncio.FIRST_COMPLETED)
            with suppress(TimeoutError):  # the client takes nothing
                for one in done:
                    one.result()
        finally:
            self._give_up()
            for one in work:
                one.cancel()
            await asyncio.gather(*work, return_exceptions=True)
            await self._content.aclose()
            if self.after is not None:
                await self.after()

    def _give_up(self) -> None:
        for handle in self._handles:
            handle.cancel()

    async def _send(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        async for data in self._content:
            await _say(send, data)
        await _say(send, b"", more=False)

    async def _watch(self, receive: Receive, send: Send) -> None:
        """Return when the client leaves; until then show it now and then that the stream lives."""
        while True:
            try:
                async with asyncio.timeout(KEEP_ALIVE_S):
                    message = await receive()
            except TimeoutError:
                await _say(send, PING)
            else:
                if message["type"] == "http.disconnect":
                    return

    async def _sent(
        self, opening: Sent, events: AsyncGenerator[tuple[int, list[requests.Event]], None]
    ) -> AsyncGenerator[Sent, None]:
        """Yield what is sent; errors too, since the status has been sent before them."""
        if opening:
            yield opening
        try:
            async for index, batch in events:
                if data := b"".join(one for event in batch for one in self._render(event, index)):
                    yield data
        except Exception as error:  # a stream that has begun can only end with one line
            if not isinstance(error, InfiniPotError):
                errors.log.error("a stream failed", exc_info=error)
            yield sent(errors.body(errors.refusal(error)), self._error)
        finally:
            await events.aclose()


async def _say(send: Send, data: Sent, more: bool = True) -> None:
    async with asyncio.timeout(SEND_S):
        await send({"type": "http.response.body", "body": data, "more_body": more})
