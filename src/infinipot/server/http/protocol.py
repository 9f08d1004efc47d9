"""HTTP of a connection: uvicorn's, with time limits, and with what belongs together sent together."""

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from infinipot.server.http import streams
from infinipot.server.http.uploads import SENT

HEADERS_S = 30.0  # time to send them
LINGER_S = 2.0  # time to take the answer to a request whose body is not waited for


class Corked:
    """A connection's transport, which sends all that is written in one turn of the event loop at once.

    To call the operating system costs more than to make a piece of an answer, and an answer's head, text and
    end are written one by one.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport, self._loop = transport, loop
        self._written: list[bytes] = []

    def write(self, data: bytes) -> None:
        """Send some bytes at the end of this turn."""
        if not self._written:
            self._loop.call_soon(self._flush)
        self._written.append(data)

    def close(self) -> None:
        """Close the connection once what was written is sent."""
        self._flush()
        self._transport.close()

    def get_write_buffer_size(self) -> int:
        """Return how many bytes were not yet taken."""
        return self._transport.get_write_buffer_size() + sum(map(len, self._written))

    def _flush(self) -> None:
        written, self._written = self._written, []
        if written and not self._transport.is_closing():
            self._transport.write(b"".join(written))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class Protocol(H11Protocol):
    """uvicorn's HTTP, with a bound on the time of a head, of a body after its answer, and of an answer."""

    _late: asyncio.TimerHandle
    _stuck: asyncio.TimerHandle | None = None  # set while more is to be sent than the client takes

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        """Start the time limit of a request's head."""
        super().connection_made(Corked(transport, self.loop))  # type: ignore[arg-type]  # all that is asked of one
        self._wait()

    def data_received(self, data: bytes) -> None:
        """Take bytes; the time limit ends once they make a whole head."""
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE:
            self._late.cancel()
        elif self._late.cancelled():
            self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """End the time limits with the connection."""
        self._late.cancel()
        self._end_watch()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """Stop sending until the client has taken what was sent, for which it has a time limit."""
        super().pause_writing()
        self._watch()

    def resume_writing(self) -> None:
        """Go on sending."""
        self._end_watch()
        super().resume_writing()

    def on_response_complete(self) -> None:
        """Go on with the connection; close it soon where the request's body is still on its way.

        A client that is refused before its body came would otherwise hold the connection with a byte now
        and then. Closed at once, it might not see the answer.
        """
        super().on_response_complete()
        if self.conn.their_state is h11.SEND_BODY:
            self.loop.call_later(LINGER_S, self.transport.close)

    def _wait(self) -> None:
        self._late = self.loop.call_later(HEADERS_S, self.transport.close)

    def _watch(self) -> None:
        """Let a client go that takes too little; a connection that is only closed waits for what is left."""
        before = self.transport.get_write_buffer_size()

        def look() -> None:
            if before - self.transport.get_write_buffer_size() < SENT:
                self.transport.abort()
            else:
                self._watch()

        self._stuck = self.loop.call_later(streams.SEND_S, look)

    def _end_watch(self) -> None:
        if self._stuck is not None:
            self._stuck.cancel()
