"""How each kind of request is served, as steps that the scheduler takes in turns with other requests' steps.

A handler yields None after a forward pass, a future when it waits for the disk, and a sequence once it
answers; it is sent what it waited for: the future's result, or the sequence's next token, None at its end.
It returns its last event, which is put once the slot is free. Knows neither threads nor HTTP.
"""

import time
from collections.abc import Callable, Generator
from collections.abc import Sequence as Several
from concurrent.futures import Future
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, TypeVar

from infinipot.errors import ConfigError, InputError
from infinipot.reading.answer import AnswerText
from infinipot.reading.progress import Progress, TextProgress
from infinipot.reading.reader import Reader
from infinipot.reading.sequence import Sequence
from infinipot.reading.step_group import shared_sizes
from infinipot.server.scheduler import prompts, recall, requests
from infinipot.server.scheduler.answer_events import AnswerEvents
from infinipot.server.scheduler.pot_library import PotLibrary
from infinipot.server.scheduler.slots import Slot, Slots
from infinipot.server.scheduler.tool_calls import CLOSE
from infinipot.text.documents import stored
from infinipot.text.files import label
from infinipot.text.tokenizer import Format, Tools

STEPS = 4  # of decoding for many that take as long as a pass for one short prompt, on a card, about
OVERFLOW = "the model's numbers overflow on this text or pot: ask otherwise, or read it again"
LONG = 100_000  # characters that take some hundredths of a second to be split into tokens
T = TypeVar("T")
Steps = Generator[Future[Any] | Sequence | None, Any, T]


@dataclass(eq=False)
class Running:
    """A request being served."""

    handle: requests.RequestHandle
    slots: Slots
    library: PotLibrary
    format: Format
    background: Callable[..., Future[Any]]  # runs a function on the disk's thread
    known: int = 0  # first messages that are in the slot's pot already
    version: str = ""  # names the content of the pot that the request is about
    started: float = field(default_factory=time.monotonic)
    turn: int = 0  # when the request last read, in turns
    others: int = 0  # requests beside it, now
    share: float = 0.0  # of its text that is read
    sequence: Sequence | None = None  # its answer, once it has begun
    waits: Future[Any] | None = None  # for the disk

    def __post_init__(self) -> None:
        self.steps: Steps[requests.Event] = _HANDLERS[type(self.handle.request)](self, self.handle.request)
        self._slot: Slot | None = None

    def take_slot(self, version: str = "") -> None:
        """Take a slot before the first step: the one whose pot holds the conversation, if there is one."""
        request, names = self.handle.request, list[str]()
        if isinstance(request, requests.ChatRequest):
            names = prompts.conversation_names(request.tenant, version, request.messages, request.tools)
        self.version, (self._slot, self.known) = version, self.slots.take(names)

    def release(self) -> None:
        """Give the slot back, if there is one that was not yet given back."""
        if self._slot is not None and self._slot.busy:
            self._slot.release()

    def given(self) -> Any:
        """Return what the request waited for; first that is its pot's version, and then it takes a slot."""
        assert self.waits is not None
        waits, self.waits = self.waits, None
        return waits.result() if self._slot is not None else self.take_slot(waits.result())

    @property
    def slot(self) -> Slot:
        """Its slot, which it has from the first step on."""
        assert self._slot is not None
        return self._slot

    @property
    def reader(self) -> Reader:
        """The slot's reader."""
        return self.slot.reader

    @property
    def is_new_question(self) -> bool:
        """Say whether somebody waits for an answer of which nothing was done yet."""
        return not self.turn and not isinstance(self.handle.request, requests.ReadIntoPot)

    def seconds_left(self, usual: float) -> float:
        """Return how long the request is likely to take; `usual` is what such requests take."""
        past = time.monotonic() - self.started
        return past * (1 - self.share) / self.share if 0 < self.share < 1 else max(0.0, usual - past)

    def state(self) -> dict[str, Any]:
        """Return what an operator sees of the request."""
        step = self.reader.progress() if self._slot is not None else Progress(0, 0, 0, 0, 0.0)
        numbers = {"tokens_read": step.tokens_read, "fill": step.fill, "cycles": step.cycles}
        return {"busy": True, "kind": "answering" if self.sequence else "reading", **numbers}


def _chat(running: Running, request: requests.ChatRequest) -> Steps[requests.Event]:
    """Read what is new of a conversation, and answer."""
    reader, cached, about = running.reader, running.slot.tokens, request.pot is not None
    asked, capacity, recalls = request.messages, reader.config.capacity, reader.config.recalled > 0
    last_is_tool = asked[-1].role == "tool"  # what a function returned asks for nothing
    question = "" if last_is_tool else prompts.question(asked[-1].content)
    _set_question(reader, request.options, asked[-1].content)
    if about and not running.known:
        state, card = yield running.background(running.library.load, request.pot)
        reader.restore(state)
        del state
        kept = running.library.archive, request.pot, card, running.slot.most_archived
        if recalls and (found := (yield running.background(*kept))):
            reader.archive = found
    told = asked, reader.tokenizer, running.format, running.known, about, capacity, request.tools
    prompt = yield from _prompt(running, asked[running.known :], prompts.conversation, *told)
    fresh, last = list(asked[running.known : -1]), [asked[-1]]
    if prompt.message is None:  # what is before its question may be recalled already
        text = asked[-1].content.rstrip().removesuffix(question)
        fresh, last = [*fresh, requests.Message(asked[-1].role, text)], []
    if recalls and fresh:
        yield running.background(recall.archive, reader, fresh)
    answer, answered = yield from _answer(running, prompt, cached, request.options, question, request.tools)
    if request.keep and answer is not None:
        whole = [*asked, requests.Message("assistant", answer)]
        if recalls:
            recall.archive(reader, [*last, whole[-1]])
        name = prompts.conversation_names(request.tenant, running.version, whole, request.tools)[-1]
        running.slot.release(name, answered.prompt + answered.completion)
    return answered


def _complete(running: Running, request: requests.CompletionRequest) -> Steps[requests.Event]:
    """Read a text, and go on from its end."""
    reader = running.reader
    _set_question(reader, request.options, request.text)
    told = request.text, reader.tokenizer, running.format, reader.config.capacity
    prompt = yield from _prompt(running, [request.text], prompts.continuation, *told)
    return (yield from _answer(running, prompt, 0, request.options))[1]


def _read_into_pot(running: Running, request: requests.ReadIntoPot) -> Steps[requests.Event]:
    """Read a file into a pot that is kept; the pot's name is held from the first step to the last."""
    reader, library, before = running.reader, running.library, None
    reader.set_question(catalyst=request.catalyst)
    try:
        yield running.background(library.hold, request)
        if request.append:
            state, before = yield running.background(library.load, request.name)
            reader.restore(state)
            del state
            kept = library.archive, request.name, before, running.slot.most_archived
            reader.archive = yield running.background(*kept)
        known = reader.tokens_read
        text = reader.archived(stored(request.file, request.kind, request.parts, label(request.title)))
        pieces = chain(["\n\n"] if request.append else [], text)
        progress = TextProgress(reader.tokenizer, pieces, size=lambda piece: len(piece.encode()))
        running.handle.put(requests.Reading(reader.progress(), known, known, None, 0.0))
        for step in reader.reading_tokens(progress.tokens()):
            done = progress.read(step.tokens_read - known)
            running.share = done / max(1, request.bytes)
            running.handle.put(requests.Reading(step, step.tokens_read, known, None, step.seconds, done))
            yield None
        card = yield running.background(library.save, request, reader, before)
    finally:
        running.background(library.let_go, request)
    return requests.Kept(card, request.name)


def _prompt(
    running: Running,
    texts: Several[requests.Message | str],
    make: Callable[..., prompts.Prompt],
    *given: Any,
) -> Steps[prompts.Prompt]:
    """Split texts into tokens; long ones on another thread, since others wait for tokens meanwhile."""
    size = sum(len(one if isinstance(one, str) else one.content) for one in texts)
    if size < LONG:
        return make(*given)
    made: prompts.Prompt = yield running.background(make, *given)
    return made


def _set_question(reader: Reader, options: requests.AnswerOptions, text: str) -> None:
    """Take the catalyst for this text's question, or the general one where that would not fit."""
    try:
        reader.set_question(prompts.question(text), options.catalyst, framed=False)
    except ConfigError:
        reader.set_question(None, "general", framed=False)


def _answer(
    running: Running,
    prompt: prompts.Prompt,
    cached: int,
    options: requests.AnswerOptions,
    question: str = "",
    tools: Tools = (),
) -> Steps[tuple[str | None, requests.Answered]]:
    """Read the prompt, and passages for the question, then answer.

    Returns the answer, if a conversation can go on from it, and the end.
    """
    reader, put, wanted = running.reader, running.handle.put, options.generation
    most = wanted.max_new_tokens
    if not prompt.tail:
        raise InputError("there is nothing to answer: send some text")
    reader.require(len(prompt.tail), most)
    started, before, total = time.perf_counter(), reader.tokens_read, cached + prompt.total

    def tell(step: Progress, done: int) -> None:
        running.share = done / prompt.total
        put(requests.Reading(step, cached + done, cached, total, time.perf_counter() - started))

    tell(reader.progress(), 0)
    for step in reader.reading_tokens(prompt.blocks()):
        tell(step, step.tokens_read - before)
        yield None
    recalls = question and reader.config.recalled and reader.pot.cycles  # else the pot holds all
    prompt, recalled = recall.recalling(reader, prompt, question, most) if recalls else (prompt, {})
    total = cached + prompt.total
    least = min(shared_sizes(reader.pot), default=1) - 1
    later = len(prompt.tail) <= max(least, STEPS * running.others) and reader.session.joins_batches
    sequence = reader.sequence(prompt.tail, wanted, later=later)
    tell(reader.progress(), prompt.total)
    text = AnswerText(reader.tokenizer, (*options.stops, *reader.frame.stop_strings))
    told = AnswerEvents(put, reader.tokenizer, tools, options.one_call)
    while text.tokens < most and not (text.stopped or told.done):
        token = yield sequence
        if sequence.overflows:
            raise InputError(OVERFLOW)
        if token is None:
            break
        told.tell(text.push(token), sequence.score)
    told.end(text.flush())
    if sequence.constraint is not None and (problem := sequence.constraint.problem):
        raise InputError(f"the answer could not follow its schema ({problem.splitlines()[0][:200]})")
    finish: requests.Finish = text.finish_reason(most)
    if told.done or (told.calls and finish == "stop"):
        finish = "tool_calls"
    answered = requests.Answered(finish, total, cached, text.tokens, recalled)
    cut = text.stopped or (told.done and not text.text.endswith(CLOSE))
    return None if cut else told.answer(text.text), answered


_HANDLERS: dict[type[requests.Request], Callable[..., Steps[requests.Event]]] = {
    requests.ChatRequest: _chat,
    requests.CompletionRequest: _complete,
    requests.ReadIntoPot: _read_into_pot,
}
