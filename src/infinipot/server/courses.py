"""What is done for each kind of order, as steps that the kitchen takes in turns with other orders' steps.

A course yields None after a forward pass, a future when it waits for the disk, and a voice once it
is to speak; it is sent what it asked for: the future's result, or the voice's next token, None at its
end. It returns its last event, told once its berth is free. Knows neither threads nor HTTP.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from infinipot.errors import ConfigError, InputError
from infinipot.reading.decode import Voice
from infinipot.reading.progress import TextProgress
from infinipot.reading.reader import Progress, Reader
from infinipot.server import prompts
from infinipot.server.berths import Berth
from infinipot.server.orders import (
    Answered,
    AnswerOptions,
    Brew,
    Continue,
    Event,
    Kept,
    Message,
    Piece,
    Reading,
    Talk,
    Usage,
)
from infinipot.server.prompts import Prompt
from infinipot.server.shelf import Shelf
from infinipot.text.detokenize import Detokenizer, Until
from infinipot.text.files import read_text
from infinipot.text.tokenizer import Format

Course = Generator[Future[Any] | Voice | None, Any, Event]


@dataclass(frozen=True)
class Place:
    """Where an order is served: its berth, the way back, and what is the same for all orders."""

    berth: Berth
    known: int  # first messages that are in the berth's pot already
    put: Callable[[Event], None]
    background: Callable[..., Future[Any]]  # runs a function elsewhere
    shelf: Shelf  # the tenant's pots
    format: Format

    @property
    def reader(self) -> Reader:
        """The berth's reader."""
        return self.berth.reader

    @property
    def longest(self) -> int:
        """Tokens of a message that are asked as they are, not distilled first."""
        return max(1, self.reader.config.capacity // 4)


def talk(place: Place, order: Talk, version: str) -> Course:
    """Read what is new of a conversation, and answer; `version` names the content of the pot it is about."""
    reader, cached = place.reader, place.berth.tokens
    _aim(reader, order.options, order.messages[-1].content)
    if order.pot is not None and not place.known:
        reader.restore((yield place.background(place.shelf.load, order.pot))[0])
    about = order.pot is not None
    prompt = prompts.conversation(
        order.messages, reader.tokenizer, place.format, place.known, about, place.longest
    )
    said, answered = yield from _serve(place, prompt, cached, order.options)
    if order.keep and said is not None:
        whole = [*order.messages, Message("assistant", said)]
        tokens = answered.usage.prompt + answered.usage.completion
        place.berth.leave(prompts.names(order.tenant, version, whole)[-1], tokens)
    return answered


def go_on(place: Place, order: Continue) -> Course:
    """Read a text, and go on from its end."""
    _aim(place.reader, order.options, order.text)
    prompt = prompts.continuation(order.text, place.reader.tokenizer, place.format, place.longest)
    _, answered = yield from _serve(place, prompt, 0, order.options)
    return answered


def brew(place: Place, order: Brew) -> Course:
    """Read a file into a pot that is kept; the name is held from the first to the last."""
    reader, shelf, before = place.reader, place.shelf, None
    reader.set_question(catalyst=order.catalyst)
    try:
        yield place.background(shelf.hold, order)
        if order.append:
            state, before = yield place.background(shelf.load, order.name)
            reader.restore(state)
            del state
        known = reader.tokens_read
        text = TextProgress(reader.tokenizer, _pieces(order), size=lambda piece: len(piece.encode()))
        for progress in reader.reading_tokens(text.tokens()):
            read = progress.tokens_read
            place.put(Reading(progress, read, known, None, progress.seconds, text.read(read - known)))
            yield None
        card = yield place.background(shelf.save, order, reader, before)
    finally:
        place.background(shelf.let_go, order)
    return Kept(card, order.name)


def _pieces(order: Brew) -> Iterator[str]:
    if order.append:
        yield "\n\n"
    yield from read_text(order.file)


def _aim(reader: Reader, options: AnswerOptions, text: str) -> None:
    """Take the catalyst for this text's question, or the general one where that would not fit."""
    try:
        reader.set_question(prompts.question(text), options.catalyst, framed=False)
    except ConfigError:
        reader.set_question(None, "general", framed=False)


def _serve(
    place: Place, prompt: Prompt, cached: int, options: AnswerOptions
) -> Generator[Future[Any] | Voice | None, Any, tuple[str | None, Answered]]:
    """Read, then speak; return what was said if the conversation can go on from it, and the last event."""
    reader, started, wanted = place.reader, time.perf_counter(), options.generation
    if not prompt.tail:
        raise InputError("there is nothing to answer: send some text")
    reader.require(len(prompt.tail), wanted.max_new_tokens)
    before = reader.tokens_read

    def tell(progress: Progress, done: int) -> None:
        seconds = time.perf_counter() - started
        place.put(Reading(progress, cached + done, cached, cached + prompt.total, seconds))

    tell(reader.progress(), 0)
    for progress in reader.reading_tokens(prompt.blocks()):
        tell(progress, progress.tokens_read - before)
        yield None
    voice = Voice(0, reader, prompt.tail, wanted, final=False)
    if not voice.logits.amax().isfinite():  # drawing from them would end everybody's answer
        raise InputError("the model's numbers overflow on this text or pot: ask otherwise, or read it again")
    tell(reader.progress(), prompt.total)
    text = Until(Detokenizer(reader.tokenizer), (*options.stops, *reader.frame.stop_strings))
    said, count = "", 0
    while count < wanted.max_new_tokens and not text.stopped:
        token = yield voice
        if token is None:
            break
        count += 1
        if piece := text.push(token):
            said += piece
            place.put(Piece(piece))
    if piece := text.flush():
        said += piece
        place.put(Piece(piece))
    whole = text.stopped or count < wanted.max_new_tokens
    usage = Usage(cached + prompt.total, cached, count)
    return None if text.stopped else said, Answered("stop" if whole else "length", usage)
