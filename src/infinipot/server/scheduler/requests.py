"""What the scheduler can be asked for, and the events that come back: plain data, no HTTP, no tensors."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any, Literal

from infinipot.common.out_of_memory import out_of_memory
from infinipot.errors import InfiniPotError
from infinipot.reading.catalyst import catalyst_text
from infinipot.reading.progress import Progress
from infinipot.reading.sampling import Generation
from infinipot.server.scheduler.post import Inbox, Post
from infinipot.server.scheduler.tool_calls import Call as Call
from infinipot.store import Card
from infinipot.text.convert.isolated import Part
from infinipot.text.convert.kinds import Kind
from infinipot.text.tokenizer import Tools

log = logging.getLogger("infinipot.server")


TELL_S = 5.0  # between two words about an unchanged place in the queue
Finish = Literal["stop", "length", "tool_calls"]


class BusyError(InfiniPotError):
    """The queue is full, or the server is closing."""

    def __init__(self, message: str, retry_after: int, closing: bool = False) -> None:
        super().__init__(message)
        self.retry_after, self.closing = retry_after, closing


class FaultError(InfiniPotError):
    """The server's fault, not the caller's: out of memory, or an error of its own."""


class MemoryFaultError(FaultError):
    """Memory ran out for one request, which is ended; the others go on."""


def error_for_caller(error: BaseException) -> Exception:
    """Return what a caller is told of an error; details of the server's own go to the log."""
    if isinstance(error, InfiniPotError):
        return error
    if not isinstance(error, Exception):  # ends the scheduler
        raise error
    if out_of_memory(error):
        log.error("out of memory: %s", (str(error).splitlines() or [""])[0])
        return MemoryFaultError("out of memory while serving this request: send less, or try again later")
    log.error("a request failed", exc_info=error)
    return FaultError("an error of the server's own while serving this request: see its log")


@dataclass(frozen=True)
class Message:
    """One message of a conversation."""

    role: Literal["system", "user", "assistant", "tool"]
    content: str


@dataclass(frozen=True)
class AnswerOptions:
    """How an answer is wanted."""

    generation: Generation = field(default_factory=Generation)
    stops: tuple[str, ...] = ()
    catalyst: str = "question"
    one_call: bool = False  # of a function, at most


@dataclass(frozen=True)
class ChatRequest:
    """Answer the last message of a conversation, about a kept pot if one is named."""

    tenant: str
    messages: Sequence[Message]
    options: AnswerOptions = AnswerOptions()
    pot: str | None = None
    keep: bool = True  # the conversation's pot, for the next turn
    tools: Tools = ()  # functions that the model may call


@dataclass(frozen=True)
class CompletionRequest:
    """Go on from a text."""

    tenant: str
    text: str
    options: AnswerOptions = AnswerOptions()


@dataclass(frozen=True, eq=False)
class ReadIntoPot:
    """Read a file into a kept pot."""

    tenant: str
    name: str
    file: Path  # checked UTF-8
    title: str
    sha256: str
    bytes: int
    append: bool = False
    replace: bool = False
    catalyst: str = "general"
    kind: Kind = "text"
    parts: Sequence[Part] = ()  # of a document that was made text


Request = ChatRequest | CompletionRequest | ReadIntoPot


def check(request: Request) -> None:
    """Refuse a request with an unknown catalyst."""
    if isinstance(request, ReadIntoPot):
        catalyst_text(request.catalyst)
    else:
        catalyst_text(request.options.catalyst, "")


@dataclass(frozen=True)
class Queued:
    """The request waits for a slot."""

    position: int  # 1 is next
    wait_s: float  # likely, from what runs now and what requests took lately


@dataclass(frozen=True)
class Reading:
    """A forward pass was made."""

    progress: Progress
    processed: int  # tokens of this request that are done, those known before included
    cached: int
    total: int | None  # tokens of this request; None for a file, which is still being split
    seconds: float
    bytes: int = 0  # of a file, how much was read so far


@dataclass(frozen=True)
class Scored:
    """A token of the answer as text, its log probability, and those of the likeliest tokens there."""

    text: str
    logprob: float
    likeliest: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True)
class Piece:
    """Some more of the answer."""

    text: str
    scored: tuple[Scored, ...] = ()  # its tokens, if they are wanted


@dataclass(frozen=True)
class Answered:
    """The answer is whole."""

    finish: Finish
    prompt: int  # tokens of the prompt, whether read now or known before
    cached: int  # tokens known before
    completion: int
    recalled: dict[str, Any] = field(default_factory=dict)  # `passages`, where the answer may come from


@dataclass(frozen=True)
class Kept:
    """The pot is in the store."""

    card: Card
    name: str


Event = Queued | Reading | Piece | Call | Answered | Kept


class RequestHandle:
    """A submitted request: its events, from the scheduler's thread to an event loop, and a way to cancel."""

    def __init__(
        self, request: Request, wake: Callable[[], None] = lambda: None, post: Post | None = None
    ) -> None:
        self.request, self.cancelled, self._ended, self._whole = request, False, False, False
        self.began = time.perf_counter()
        self._wake, self._loop, self._post = wake, asyncio.get_running_loop(), post or Post()
        self._inbox = Inbox()  # of events, and of what went wrong
        self._place, self._told = 0, 0.0  # what was said of the queue, and when

    def cancel(self) -> None:
        """Give the request up: its slot is free within one chunk."""
        if self.cancelled or self._whole:
            return
        self.cancelled = True
        self._wake()

    def put(self, event: Event | Exception) -> None:
        """Hand over an event; called from the scheduler's thread."""
        self._post.put(self._loop, self._inbox, event)

    def tell_place(self, place: int, wait_s: float) -> None:
        """Say where the request stands in the queue: when that changes, and every few seconds."""
        now = time.monotonic()
        if place != self._place or now - self._told > TELL_S:
            self._place, self._told = place, now
            self.put(Queued(place, wait_s))

    async def peek(self, seconds: float) -> None:
        """Wait some time for the first event; raise it if it says what went wrong."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                if isinstance(first := await self._inbox.first(), Exception):
                    raise first

    async def batches(self) -> AsyncIterator[list[Event]]:
        """Yield what has come since the last time, up to the last event; raise what went wrong."""
        while not self._ended:
            await self._inbox.first()
            found, failure = list[Event](), None
            for event in _joined(self._inbox.take()):
                if isinstance(event, Exception):
                    failure = event
                    break
                found.append(event)
                if isinstance(event, Answered | Kept):
                    break
            self._whole = failure is None and isinstance(found[-1], Answered | Kept)
            self._ended = self._whole or failure is not None
            if found:
                yield found
            if failure is not None:
                raise failure

    async def __aiter__(self) -> AsyncIterator[Event]:
        """Yield events one by one."""
        async for batch in self.batches():
            for event in batch:
                yield event


def _joined(events: Iterable[Event | Exception]) -> Iterator[Event | Exception]:
    """Yield events; pieces of text that came together are one."""
    for is_text, some in groupby(events, lambda event: isinstance(event, Piece)):
        if not is_text:
            yield from some
            continue
        pieces = [one for one in some if isinstance(one, Piece)]
        scored = tuple(one for piece in pieces for one in piece.scored)
        yield Piece("".join(piece.text for piece in pieces), scored) if len(pieces) > 1 else pieces[0]
