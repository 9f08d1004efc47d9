"""What is sent of a stream, how often, and what becomes of it when its client leaves or takes nothing."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import anyio
import pytest

from infinipot.server.http import streams
from infinipot.server.http.answers import Pieces
from infinipot.server.http.objects import Answer
from infinipot.server.http.protocol import Corked
from infinipot.server.http.streams import EventStream, sent
from infinipot.server.scheduler.post import Inbox
from infinipot.server.scheduler.requests import (
    Answered,
    AnswerOptions,
    BusyError,
    CompletionRequest,
    Event,
    FaultError,
    Piece,
    RequestHandle,
    Scored,
)
from infinipot.server.scheduler.slots import Slots
from waiting import within_a_minute

END = Answered("stop", 1, 0, 2, {})
TEXTS = ("", "a", ' "quoted" \\ \n\u2028', "wörld 🦊", "QzTextQz", '"QzTextQz"', "\ud83e")


def run(work: Callable[[], Awaitable[None]]) -> None:
    anyio.run(within_a_minute, work)


def request() -> RequestHandle:
    return RequestHandle(CompletionRequest("public", "text", AnswerOptions()))


# Events --------------------------------------------------------------------------


def test_an_inbox_wakes_who_waits_and_is_emptied_at_once() -> None:
    async def work() -> None:
        inbox = Inbox()
        waiting = asyncio.ensure_future(inbox.first())
        await asyncio.sleep(0)
        for number in range(3):
            inbox.put_nowait(number)
        assert await waiting == 0
        assert await inbox.first() == 0  # it was only looked at
        assert inbox.take() == [0, 1, 2]
        assert inbox.take() == []

    run(work)


def test_an_inbox_outlives_who_waited() -> None:
    async def work() -> None:
        inbox = Inbox()
        waiting = asyncio.ensure_future(inbox.first())
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        inbox.put_nowait("a")  # nobody is there to be woken
        assert await inbox.first() == "a"

    run(work)


def test_what_came_together_is_one_batch_and_its_text_one_piece() -> None:
    async def work() -> None:
        handle, found = request(), list[list[Event]]()
        for event in (Piece("a"), Piece("b"), END, Piece("after the end")):
            handle.put(event)
        async for batch in handle.batches():
            found.append(batch)
        assert found == [[Piece("ab"), END]]

    run(work)


def test_what_came_before_a_failure_is_told_first() -> None:
    async def work() -> None:
        handle, found = request(), list[Event]()
        for event in (Piece("a"), FaultError("no more"), Piece("b")):
            handle.put(event)
        failure = ""
        try:
            async for batch in handle.batches():
                found += batch
        except FaultError as error:
            failure = str(error)
        assert (found, failure) == ([Piece("a")], "no more")

    run(work)


def test_a_request_that_ended_is_not_given_up() -> None:
    async def work() -> None:
        woken = list[int]()
        handles = [
            RequestHandle(CompletionRequest("public", "text", AnswerOptions()), lambda: woken.append(1))
            for _ in range(2)
        ]
        handles[0].put(END)
        assert [batch async for batch in handles[0].batches()] == [[END]]
        handles[0].cancel()
        assert (handles[0].cancelled, woken) == (False, [])
        for _ in range(2):
            handles[1].cancel()
        assert (handles[1].cancelled, woken) == (True, [1])

    run(work)


# What is sent --------------------------------------------------------------------


@pytest.mark.parametrize("chat", [True, False])
@pytest.mark.parametrize("usage", [{}, {"usage": None}], ids=["plain", "usage"])
@pytest.mark.parametrize("model", ["toy", "QzTextQz"])
def test_a_piece_is_sent_as_if_written_whole(chat: bool, usage: dict[str, Any], model: str) -> None:
    answer = Answer(model, chat)
    pieces = Pieces(answer, usage)
    for text in TEXTS:
        for index in (0, 2):
            got = pieces.sent(Piece(text), index)
            assert got == sent(answer.chunk(text, index) | usage)
            assert json.loads(got.removeprefix(b"data: "))["choices"][0]["index"] == index
    scored = (Scored("a", -0.5),)
    wanted = sent(answer.chunk("a", 0, scored=scored) | usage)
    assert pieces.sent(Piece("a", scored), 0) == wanted


class Transport:
    """A connection that notes what is written to it."""

    def __init__(self) -> None:
        self.written, self.closed, self.waiting = list[bytes](), False, 0

    def write(self, data: bytes) -> None:
        assert not self.closed
        self.written.append(data)

    def close(self) -> None:
        self.closed = True

    abort = close

    def is_closing(self) -> bool:
        return self.closed

    def get_write_buffer_size(self) -> int:
        return self.waiting

    def get_extra_info(self, name: str) -> str:
        return name


def corked() -> tuple[Transport, Any]:
    transport = Transport()
    return transport, Corked(transport, asyncio.get_running_loop())  # type: ignore[arg-type]


def test_what_is_written_in_one_turn_is_sent_at_once() -> None:
    async def work() -> None:
        transport, cork = corked()
        for part in (b"head", b"text", b"end"):
            cork.write(part)
        transport.waiting = 5
        assert transport.written == []
        assert cork.get_write_buffer_size() == 5 + 11
        await asyncio.sleep(0)
        assert transport.written == [b"headtextend"]
        assert cork.get_write_buffer_size() == 5
        cork.write(b"more")
        await asyncio.sleep(0)
        assert transport.written == [b"headtextend", b"more"]
        assert cork.get_extra_info("peername") == "peername"

    run(work)


def test_a_connection_that_is_closed_sends_what_was_written_before() -> None:
    async def work() -> None:
        transport, cork = corked()
        cork.write(b"last")
        cork.close()
        assert (transport.written, transport.closed) == ([b"last"], True)
        cork.write(b"too late")
        await asyncio.sleep(0)
        assert transport.written == [b"last"]

    run(work)


def test_a_connection_that_is_cut_off_sends_nothing_more() -> None:
    async def work() -> None:
        transport, cork = corked()
        cork.write(b"last")
        cork.abort()
        await asyncio.sleep(0)
        assert (transport.written, transport.closed) == ([], True)

    run(work)


# A stream ------------------------------------------------------------------------


class Quiet:
    """A service as far as a stream of one request goes."""

    async def merged(self, handles: list[RequestHandle]) -> Any:
        async for batch in handles[0].batches():
            yield 0, batch


class Client:
    """Takes a stream: what it was sent, body by body."""

    def __init__(self, stuck: bool = False) -> None:
        self.bodies, self.heads, self.gone = list[bytes](), list[dict[str, Any]](), asyncio.Event()
        self.stuck = stuck

    async def receive(self) -> dict[str, Any]:
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            self.heads.append(message)
        elif self.stuck:
            await asyncio.Event().wait()
        else:
            self.bodies.append(message["body"])

    async def take(self, stream: EventStream) -> None:
        await stream({"type": "http"}, self.receive, self.send)  # type: ignore[arg-type]


def render(event: Event, index: int) -> Iterator[bytes]:
    if isinstance(event, Piece):
        yield event.text.encode()
    elif isinstance(event, Answered):
        yield from (b"<usage>", b"<done>")


def stream(handle: RequestHandle) -> EventStream:
    return EventStream(Quiet(), [handle], render, [b"<", b"opening>"])  # type: ignore[arg-type]


def test_a_stream_sends_together_what_came_together() -> None:
    async def work() -> None:
        handle, client, over = request(), Client(), list[bool]()
        made = stream(handle)

        async def after() -> None:
            over.append(True)

        made.after = after
        taking = asyncio.ensure_future(client.take(made))
        await asyncio.sleep(0.01)
        for event in (Piece("a"), Piece("b"), END):
            handle.put(event)
        await taking
        assert client.bodies == [b"<opening>", b"ab<usage><done>", b""]
        assert client.heads[0]["status"] == 200
        head = dict(client.heads[0]["headers"])
        assert head[b"content-type"].startswith(b"text/event-stream")
        assert head[b"cache-control"] == b"no-store"
        assert b"content-length" not in head
        assert over == [True]
        assert not handle.cancelled

    run(work)


def test_a_stream_whose_client_leaves_gives_its_request_up() -> None:
    async def work() -> None:
        handle, client = request(), Client()
        taking = asyncio.ensure_future(client.take(stream(handle)))
        await asyncio.sleep(0.01)
        client.gone.set()
        await taking
        assert handle.cancelled
        assert client.bodies == [b"<opening>"]

    run(work)


def test_a_stream_whose_client_takes_nothing_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "SEND_S", 0.05)

    async def work() -> None:
        handle, client = request(), Client(stuck=True)
        await client.take(stream(handle))
        assert handle.cancelled
        assert client.bodies == []

    run(work)


def test_a_stream_that_is_never_sent_gives_its_request_up() -> None:
    async def work() -> None:
        handle = request()
        handle.put(BusyError("full", 1))
        with pytest.raises(BusyError):
            await stream(handle).peek()
        assert handle.cancelled

    run(work)


def test_what_goes_wrong_in_a_stream_is_its_last_event() -> None:
    async def work() -> None:
        handle, client = request(), Client()
        for event in (Piece("a"), FaultError("no more")):
            handle.put(event)
        await client.take(await stream(handle).peek())
        assert client.bodies[:2] == [b"<opening>", b"a"]
        assert json.loads(client.bodies[2].removeprefix(b"data: "))["error"]["message"] == "no more"
        assert client.bodies[3:] == [b""]

    run(work)


# Slots ---------------------------------------------------------------------------


class Emptied:
    """A reader that notes how often it was emptied."""

    def __init__(self) -> None:
        self.times, self.archive = 0, None

    def clear(self) -> None:
        self.times += 1


def test_an_empty_slot_is_not_emptied_again() -> None:
    """To empty a pot of a card takes a launch for each layer: once a request, and before the first."""
    reader = Emptied()
    slots = Slots([reader], at_once=1)  # type: ignore[list-item]
    for count in (2, 3, 4):
        slot, known = slots.take(["other", "name"])
        assert known == 0
        slot.release()
        assert reader.times == count


def test_a_kept_conversation_is_emptied_before_another_comes() -> None:
    reader = Emptied()
    slots = Slots([reader], at_once=1)  # type: ignore[list-item]
    slots.take()[0].release("mine", 5)
    before = reader.times
    slot, known = slots.take(["", "mine"])
    assert (known, reader.times) == (1, before)
    slot.release("mine", 7)
    assert slots.take(["", "theirs"])[1] == 0
    assert reader.times == before + 1
