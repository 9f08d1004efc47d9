"""How each kind of request is served, as steps that the scheduler takes in turns with other requests' steps.

A handler yields None after a forward pass, a future when it waits for the disk, and a sequence once it
answers; it is sent what it waited for: the future's result, or the sequence's next token, None at its end.
It returns its last event, which is put once the slot is free. Knows neither threads nor HTTP.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, TypeVar

from infinipot.errors import ConfigError, InputError
from infinipot.reading.decode import Voice as Sequence
from infinipot.reading.progress import TextProgress
from infinipot.reading.reader import Progress, Reader
from infinipot.server.scheduler import prompts
from infinipot.server.scheduler.pot_library import PotLibrary
from infinipot.server.scheduler.prompts import Prompt
from infinipot.server.scheduler.requests import (
    Answered,
    AnswerOptions,
    ChatRequest,
    CompletionRequest,
    Event,
    Kept,
    Message,
    Piece,
    Reading,
    ReadIntoPot,
    Request,
    Usage,
)
from infinipot.server.scheduler.slots import Slot
from infinipot.text.detokenize import Detokenizer, Until
from infinipot.text.files import read_text
from infinipot.text.tokenizer import Format

T = TypeVar("T")
Steps = Generator[Future[Any] | Sequence | None, Any, T]
Handler = Steps[Event]


@dataclass(frozen=True)
class Context:
    """Where a request is served: its slot, where its events go, and what is the same for all requests."""

    slot: Slot
    known: int  # first messages that are in the slot's pot already
    put: Callable[[Event], None]
    background: Callable[..., Future[Any]]  # runs a function on the disk's thread
    library: PotLibrary
    format: Format

    @property
    def reader(self) -> Reader:
        """The slot's reader."""
        return self.slot.reader

    @property
    def longest(self) -> int:
        """Tokens of a message that are asked as they are, not distilled first."""
        return max(1, self.reader.config.capacity // 4)


def serve(context: Context, request: Request, version: str) -> Handler:
    """Return the steps that serve a request; `version` names the content of the pot it is about."""
    match request:
        case ChatRequest():
            return _chat(context, request, version)
        case CompletionRequest():
            return _complete(context, request)
        case ReadIntoPot():
            return _read_into_pot(context, request)


def _chat(context: Context, request: ChatRequest, version: str) -> Handler:
    """Read what is new of a conversation, and answer."""
    reader, cached = context.reader, context.slot.tokens
    _set_question(reader, request.options, request.messages[-1].content)
    about = request.pot is not None
    if about and not context.known:
        reader.restore((yield context.background(context.library.load, request.pot))[0])
    prompt = prompts.conversation(
        request.messages, reader.tokenizer, context.format, context.known, about, context.longest
    )
    answer, answered = yield from _answer(context, prompt, cached, request.options)
    if request.keep and answer is not None:
        whole = [*request.messages, Message("assistant", answer)]
        name = prompts.conversation_names(request.tenant, version, whole)[-1]
        context.slot.release(name, answered.usage.prompt + answered.usage.completion)
    return answered


def _complete(context: Context, request: CompletionRequest) -> Handler:
    """Read a text, and go on from its end."""
    _set_question(context.reader, request.options, request.text)
    prompt = prompts.continuation(request.text, context.reader.tokenizer, context.format, context.longest)
    return (yield from _answer(context, prompt, 0, request.options))[1]


def _read_into_pot(context: Context, request: ReadIntoPot) -> Handler:
    """Read a file into a pot that is kept; the pot's name is held from the first step to the last."""
    reader, library, before = context.reader, context.library, None
    reader.set_question(catalyst=request.catalyst)
    try:
        yield context.background(library.hold, request)
        if request.append:
            state, before = yield context.background(library.load, request.name)
            reader.restore(state)
            del state
        known = reader.tokens_read
        text = TextProgress(reader.tokenizer, _pieces(request), size=lambda piece: len(piece.encode()))
        for step in reader.reading_tokens(text.tokens()):
            done = text.read(step.tokens_read - known)
            context.put(Reading(step, step.tokens_read, known, None, step.seconds, done))
            yield None
        card = yield context.background(library.save, request, reader, before)
    finally:
        context.background(library.let_go, request)
    return Kept(card, request.name)


def _pieces(request: ReadIntoPot) -> Iterator[str]:
    if request.append:
        yield "\n\n"
    yield from read_text(request.file)


def _set_question(reader: Reader, options: AnswerOptions, text: str) -> None:
    """Take the catalyst for this text's question, or the general one where that would not fit."""
    try:
        reader.set_question(prompts.question(text), options.catalyst, framed=False)
    except ConfigError:
        reader.set_question(None, "general", framed=False)


def _answer(
    context: Context, prompt: Prompt, cached: int, options: AnswerOptions
) -> Steps[tuple[str | None, Answered]]:
    """Read the prompt, then answer; return the answer, if a conversation can go on from it, and the end."""
    reader, started, wanted = context.reader, time.perf_counter(), options.generation
    if not prompt.tail:
        raise InputError("there is nothing to answer: send some text")
    reader.require(len(prompt.tail), wanted.max_new_tokens)
    before = reader.tokens_read

    def tell(step: Progress, done: int) -> None:
        seconds = time.perf_counter() - started
        context.put(Reading(step, cached + done, cached, cached + prompt.total, seconds))

    tell(reader.progress(), 0)
    for step in reader.reading_tokens(prompt.blocks()):
        tell(step, step.tokens_read - before)
        yield None
    sequence = Sequence(0, reader, prompt.tail, wanted, final=False)
    if not sequence.logits.amax().isfinite():  # drawing from them would end every answer of the batch
        raise InputError("the model's numbers overflow on this text or pot: ask otherwise, or read it again")
    tell(reader.progress(), prompt.total)
    text = Until(Detokenizer(reader.tokenizer), (*options.stops, *reader.frame.stop_strings))
    pieces: list[str] = []
    count = 0
    while count < wanted.max_new_tokens and not text.stopped and (token := (yield sequence)) is not None:
        count += 1
        _put(context, text.push(token), pieces)
    _put(context, text.flush(), pieces)
    ended = text.stopped or count < wanted.max_new_tokens
    usage = Usage(cached + prompt.total, cached, count)
    return None if text.stopped else "".join(pieces), Answered("stop" if ended else "length", usage)


def _put(context: Context, piece: str, pieces: list[str]) -> None:
    if piece:
        pieces.append(piece)
        context.put(Piece(piece))
