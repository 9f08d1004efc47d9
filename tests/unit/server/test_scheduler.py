"""The scheduler: requests served together say what they would say alone, and leave nothing behind."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest

from infinipot.core.config import Tail
from infinipot.engine import Engine
from infinipot.errors import ConfigError, InfiniPotError, StoreError
from infinipot.reading.sampling import Generation
from infinipot.recipes.recipe import Recipe
from infinipot.server.scheduler.requests import (
    Answered,
    AnswerOptions,
    BusyError,
    ChatRequest,
    CompletionRequest,
    FaultError,
    Kept,
    Message,
    Piece,
    Reading,
    ReadIntoPot,
    Request,
)
from infinipot.server.scheduler.scheduler import Scheduler
from infinipot.server.settings import Settings
from infinipot.store import open_store
from infinipot.testing.model import ToyModel
from infinipot.testing.tokenizer import ByteTokenizer
from infinipot.text.windows import Encoded, encode_windows

CAPACITY = 256
OPTIONS = AnswerOptions(Generation(12), catalyst="general short")
LONG = "The quick brown fox jumps over the lazy dog. " * 20


class Endless(ByteTokenizer):
    """Never stops, and spells every id as one character: what was said can be read again exactly."""

    stop_ids = frozenset()

    def encode(self, text: str) -> list[int]:
        return [ord(letter) for letter in text]

    def decode(self, ids) -> str:
        return "".join(map(chr, ids))


class Windowed(Endless):
    """Takes text ahead of the tokens it gives out, as every real tokenizer does."""

    def encode_stream(self, pieces):
        def encode(text: str) -> Encoded:
            return self.encode(text), [(at, at + 1) for at in range(len(text))]

        return encode_windows(encode, pieces, 1024)


class Slow(ToyModel):
    """Waits before every forward until it may go on."""

    def __init__(self) -> None:
        super().__init__()
        self.may = threading.Event()
        self.may.set()
        self.forwards = 0
        self.fails: Callable[[int], BaseException | None] = lambda tokens: None

    def forward(self, tokens, pot):
        self.may.wait(20)
        self.forwards += 1
        if error := self.fails(tokens.shape[1]):
            raise error
        return super().forward(tokens, pot)


@asynccontextmanager
async def serving(
    tmp_path: Path, tail: Tail | None = None, tokenizer: ByteTokenizer | None = None, **sizes: int
) -> AsyncIterator[tuple[Scheduler, Slow]]:
    model = Slow()
    engine = Engine("toy", "chat", model, tokenizer or Endless(), "float32", "0" * 64)  # type: ignore[arg-type]
    settings = Settings(**sizes)
    told = {"capacity": CAPACITY, "tail": tail, "pot_bits": settings.pot_bits}
    recipe = Recipe.named(**told, format="chat", catalyst="general short")
    scheduler = Scheduler(engine, recipe, open_store(str(tmp_path / "pots")), settings)
    scheduler.start()
    try:
        yield scheduler, model
    finally:
        model.may.set()
        await asyncio.to_thread(scheduler.stop, 5)


async def served(scheduler: Scheduler, request: Request) -> tuple[str, list]:
    events = [event async for event in scheduler.submit(request)]
    return "".join(event.text for event in events if isinstance(event, Piece)), events


def chat(*contents: str, tenant: str = "t", **more) -> ChatRequest:
    roles = ("user", "assistant")
    return ChatRequest(
        tenant, [Message(roles[n % 2], text) for n, text in enumerate(contents)], OPTIONS, **more
    )


def read_into_pot(path: Path, text: str, name: str = "book", **more) -> ReadIntoPot:
    path.write_text(text)
    return ReadIntoPot(
        "t", name, path, "A book", sha256(text.encode()).hexdigest(), len(text.encode()), **more
    )


def go(work: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(work(), 120))  # type: ignore[arg-type]


def test_together_as_alone(tmp_path: Path) -> None:
    requests: list[Request] = [chat(LONG + f"number {n}?", keep=False) for n in range(3)]
    requests += [CompletionRequest("t", "once upon a time", OPTIONS), chat("short", keep=False)]

    async def work() -> None:
        sizes = {"read_chunk": 512, "conversations": 0}  # chunks of other sizes differ in their last bits
        async with serving(tmp_path, slots=1, **sizes) as (scheduler, _):
            alone = [await served(scheduler, request) for request in requests]
        async with serving(tmp_path, slots=3, queue=8, **sizes) as (scheduler, _):
            joint = await asyncio.gather(*(served(scheduler, request) for request in requests))
            assert scheduler.slots.busy == 0
        for (text, events), (same, others) in zip(alone, joint, strict=True):
            assert text == same
            assert events[-1] == others[-1]
            assert isinstance(events[-1], Answered)
        first = alone[0][1]
        told = [event for event in first if isinstance(event, Reading)]
        assert [event.processed for event in told] == sorted(event.processed for event in told)
        assert told[-1].processed == told[-1].total == first[-1].prompt
        assert len(told) > 5

    go(work)


def test_the_next_turn_reads_only_what_is_new(tmp_path: Path) -> None:
    async def work() -> None:
        async with serving(tmp_path, slots=1, conversations=1) as (scheduler, model):
            said, events = await served(scheduler, chat(LONG))
            read = events[-1].prompt
            before = model.forwards
            _, events = await served(scheduler, chat(LONG, said, "and?"))
            assert events[-1].cached == read + 12
            assert model.forwards - before < 20  # the new turn and its answer, not the long text
            assert scheduler.slots.conversations == 1
            # Another tenant, and another history, know nothing of it.
            _, events = await served(scheduler, chat(LONG, said, "and?", tenant="u"))
            assert events[-1].cached == 0
            _, events = await served(scheduler, chat(LONG, said + "!", "and?"))
            assert events[-1].cached == 0

    go(work)


def test_a_turn_in_a_kept_pot_says_what_reading_all_again_would(tmp_path: Path) -> None:
    async def work() -> None:
        async with serving(tmp_path, slots=1, conversations=1) as (scheduler, _):
            said, _ = await served(scheduler, chat("hello"))
            going_on, events = await served(scheduler, chat("hello", said, "more"))
            assert events[-1].cached > 0
        async with serving(tmp_path, slots=1, conversations=1) as (scheduler, _):
            at_once, others = await served(scheduler, chat("hello", said, "more"))
            assert others[-1].cached == 0
        assert going_on == at_once
        assert events[-1].prompt == others[-1].prompt

    go(work)


def test_pots_are_made_kept_asked_and_appended_to(tmp_path: Path) -> None:
    async def work() -> None:
        async with serving(tmp_path, slots=2, conversations=1) as (scheduler, model):
            _, events = await served(scheduler, read_into_pot(tmp_path / "a", LONG))
            kept = events[-1]
            assert isinstance(kept, Kept)
            assert kept.card.tokens_read == len(LONG)
            assert any(isinstance(event, Reading) and event.bytes == len(LONG) for event in events)
            before = model.forwards
            answer, events = await served(scheduler, chat("what?", pot="book", keep=False))
            assert events[-1].prompt < 20
            assert model.forwards - before < 20  # nothing was read again
            again, _ = await served(scheduler, chat("what?", pot="book", keep=False))
            assert again == answer
            _, events = await served(scheduler, read_into_pot(tmp_path / "b", " More.", append=True))
            assert events[-1].card.tokens_read == len(LONG) + 8
            words = scheduler.words("t", "book").result(20)
            assert words
            assert all(0 < word.share <= 1 for word in words)
            with pytest.raises(StoreError, match="already"):
                await served(scheduler, read_into_pot(tmp_path / "c", "x"))
            await served(scheduler, read_into_pot(tmp_path / "c", "x", replace=True))
            with pytest.raises(StoreError, match="no pot"):
                await served(scheduler, chat("what?", pot="book", tenant="u"))
            with pytest.raises(StoreError, match="no pot"):
                await served(scheduler, read_into_pot(tmp_path / "d", "x", name="other", append=True))
            assert scheduler.slots.busy == 0

    go(work)


def test_two_who_write_one_pot_do_not_lose_each_other_s_text(tmp_path: Path) -> None:
    async def work() -> None:
        async with serving(tmp_path, slots=3, conversations=0) as (scheduler, _):
            await served(scheduler, read_into_pot(tmp_path / "a", LONG))
            requests = [read_into_pot(tmp_path / "b", " More." * 40, append=True) for _ in range(3)]
            done = await asyncio.gather(*(served(scheduler, one) for one in requests), return_exceptions=True)
            refused = [one for one in done if isinstance(one, StoreError)]
            kept = [one for one in done if isinstance(one, tuple)]
            assert len(kept) + len(refused) == 3
            assert refused
            assert all("is being written" in str(one) for one in refused)
            _, events = await served(scheduler, read_into_pot(tmp_path / "c", "End.", append=True))
            assert events[-1].card.tokens_read == len(LONG) + len(kept) * 242 + 6

    go(work)


def test_a_conversation_about_a_pot_goes_on_until_the_pot_changes(tmp_path: Path) -> None:
    async def work() -> None:
        async with serving(tmp_path, slots=1, conversations=1) as (scheduler, _):
            await served(scheduler, read_into_pot(tmp_path / "a", LONG))
            said, _ = await served(scheduler, chat("what?", pot="book"))
            _, events = await served(scheduler, chat("what?", said, "why?", pot="book"))
            assert events[-1].cached > 0
            await served(scheduler, read_into_pot(tmp_path / "b", "Other.", append=True))
            _, events = await served(scheduler, chat("what?", said, "why?", pot="book"))
            assert events[-1].cached == 0

    go(work)


def test_who_leaves_frees_the_slot_within_a_chunk(tmp_path: Path) -> None:
    async def work() -> None:
        async with serving(tmp_path, slots=1, conversations=0) as (scheduler, model):
            handle = scheduler.submit(chat(LONG * 50))
            async for event in handle:
                if isinstance(event, Reading) and event.processed:
                    break
            handle.cancel()
            before = model.forwards
            await served(scheduler, chat("next"))
            assert model.forwards - before < 20
            waiting = scheduler.submit(read_into_pot(tmp_path / "a", LONG * 50))
            waiting.cancel()
            await served(scheduler, chat("next"))
            assert scheduler.slots.busy == 0
            await served(scheduler, read_into_pot(tmp_path / "a", LONG))  # its name is free again

    go(work)


def test_a_full_queue_says_when_to_come_back(tmp_path: Path) -> None:
    async def work() -> None:
        async with serving(tmp_path, slots=1, conversations=0, queue=1) as (scheduler, model):
            model.may.clear()
            accepted = [asyncio.create_task(served(scheduler, chat("x"))) for _ in range(2)]
            await asyncio.sleep(0.2)
            with pytest.raises(BusyError, match=r"try again in \d+ s") as refused:
                scheduler.submit(chat("y"))
            assert refused.value.retry_after >= 1
            model.may.set()
            await asyncio.gather(*accepted)

    go(work)


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (MemoryError(), "out of memory"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate"), "out of memory"),
        (ValueError("some secret"), "error of the server's own"),
    ],
)
@pytest.mark.parametrize("at", ["reading", "answering"])
def test_one_request_s_failure_leaves_the_server_up(
    tmp_path: Path, error: Exception, told: str, at: str
) -> None:
    async def work() -> None:
        async with serving(tmp_path, slots=2, conversations=0) as (scheduler, model):
            model.fails = lambda tokens: error if (tokens > 1) == (at == "reading") else None
            with pytest.raises(FaultError, match=told):
                await served(scheduler, chat(LONG))
            model.fails = lambda tokens: None
            assert (await served(scheduler, chat(LONG)))[0]
            assert scheduler.failure == ""
            assert scheduler.slots.busy == 0

    go(work)


def test_a_dead_scheduler_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work() -> None:
        async with serving(tmp_path) as (scheduler, _):

            def broken() -> None:
                raise SystemError("the bottom fell out")

            monkeypatch.setattr(scheduler, "step", broken)
            with pytest.raises(FaultError, match="bottom fell out"):
                await served(scheduler, chat("x"))
            assert scheduler.failure
            with pytest.raises(FaultError, match="bottom fell out"):
                scheduler.submit(chat("x"))

    go(work)


def test_closing_finishes_what_was_accepted(tmp_path: Path) -> None:
    async def work() -> None:
        async with serving(tmp_path, slots=1) as (scheduler, model):
            accepted = [asyncio.create_task(served(scheduler, chat(f"x{n}"))) for n in range(3)]
            await asyncio.sleep(0)
            await asyncio.to_thread(scheduler.stop, 20)
            assert all(isinstance(events[-1], Answered) for _, events in await asyncio.gather(*accepted))
            with pytest.raises(BusyError) as refused:
                scheduler.submit(chat("late"))
            assert refused.value.closing
        async with serving(tmp_path, slots=1) as (scheduler, model):
            model.may.clear()
            late = asyncio.create_task(served(scheduler, chat("x")))
            await asyncio.sleep(0.1)
            closing = asyncio.create_task(asyncio.to_thread(scheduler.stop, 0.1))
            with pytest.raises(BusyError, match="closing"):
                await late
            model.may.set()
            await closing

    go(work)


def test_the_share_of_a_file_that_is_read_never_falls(tmp_path: Path) -> None:
    text = LONG * 4

    async def work() -> None:
        async with serving(tmp_path, tokenizer=Windowed()) as (scheduler, _):
            _, events = await served(scheduler, read_into_pot(tmp_path / "a", text))
            steps = [event for event in events if isinstance(event, Reading)]
            shares = [event.bytes for event in steps]
            assert shares == sorted(shares)
            assert all(abs(event.bytes - event.processed) <= 1 for event in steps)  # a byte is a token here
            assert max(shares[:-1]) < shares[-1] == len(text)
            _, events = await served(scheduler, read_into_pot(tmp_path / "b", text, append=True))
            shares = [event.bytes for event in events if isinstance(event, Reading)]
            assert shares == sorted(shares)
            assert shares[0] < len(text) // 2

    go(work)


def test_memory_is_known_and_what_cannot_be_bounded_refused(tmp_path: Path) -> None:
    async def work() -> None:
        async with serving(tmp_path, slots=2, conversations=3) as (scheduler, _):
            state = scheduler.state()
            pot = scheduler.slots.all[0].reader.pot
            assert state["pots_bytes"] == 5 * pot.nbytes > 0
            assert state["memory_bytes"] < state["memory_bound_bytes"]
            assert [slot["busy"] for slot in state["slots"]] == [False, False]

    go(work)
    engine = Engine("toy", "chat", ToyModel(), ByteTokenizer())  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="does not bound memory"):
        Scheduler(engine, Recipe.named("full"), open_store(str(tmp_path)), Settings())
    with pytest.raises(ConfigError, match="keeps no conversation"):
        Scheduler(engine, Recipe.named("passages"), open_store(str(tmp_path)), Settings())


def test_wrong_requests_are_the_caller_s(tmp_path: Path) -> None:
    async def work() -> None:
        async with serving(tmp_path) as (scheduler, _):
            with pytest.raises(ConfigError, match="unknown catalyst"):
                scheduler.submit(replace(chat("x"), options=replace(OPTIONS, catalyst="genral")))
            with pytest.raises(InfiniPotError, match="no text"):
                await served(scheduler, read_into_pot(tmp_path / "a", " "))
            stopped = replace(OPTIONS, stops=("\x00never",))
            text, events = await served(scheduler, replace(chat("x"), options=stopped))
            assert text
            assert events[-1].finish == "length"

    go(work)


def test_stop_strings_end_an_answer_and_are_not_shown(tmp_path: Path) -> None:
    async def work() -> None:
        async with serving(tmp_path) as (scheduler, _):
            text, _ = await served(scheduler, chat("x", keep=False))
            stop = text[4:6]
            cut = replace(OPTIONS, stops=(stop,))
            found, events = await served(scheduler, replace(chat("x"), options=cut))
            assert found == text[: text.index(stop)]
            assert events[-1].finish == "stop"
            assert scheduler.slots.conversations == 0  # its pot holds more than the caller saw

    go(work)


def test_an_answer_is_not_kept_waiting_by_a_long_chunk(tmp_path: Path) -> None:
    seen: list[int] = []

    async def work() -> None:
        async with serving(tmp_path, slots=2, read_chunk=16) as (scheduler, model):
            model.fails = lambda tokens: seen.append(tokens)  # type: ignore[func-returns-value]
            answering = scheduler.submit(
                replace(chat("x"), options=replace(OPTIONS, generation=Generation(4000)))
            )
            async for event in answering:
                if isinstance(event, Piece):
                    break
            seen.clear()
            await served(scheduler, read_into_pot(tmp_path / "a", LONG, catalyst="general short"))
            answering.cancel()

    go(work)
    assert max(tokens for tokens in seen[:40]) <= 16 + len("general short") + 8
