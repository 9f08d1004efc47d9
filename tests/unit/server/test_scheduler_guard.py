"""What must not end, stall or swell the scheduler: strangers' pots, waiting requests, an early end."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from infinipot.core.state import State
from infinipot.engine import Engine
from infinipot.errors import InputError, StoreError
from infinipot.reading.sampling import Generation
from infinipot.recipes.recipe import Recipe
from infinipot.server.http.metrics import Metrics, RequestMetrics
from infinipot.server.scheduler.requests import (
    Answered,
    ChatRequest,
    CompletionRequest,
    FaultError,
    Message,
    Piece,
    Queued,
    Reading,
    RequestHandle,
    Scored,
)
from infinipot.server.scheduler.scheduler import Scheduler
from infinipot.server.settings import Settings
from infinipot.store import open_store
from infinipot.text.tokenizer import Format, Frame
from waiting import comes_true

from .test_scheduler import CAPACITY, LONG, OPTIONS, Endless, Slow, chat, go, read_into_pot, served, serving


class Bare(Endless):
    """Nothing goes before a text."""

    def frame(self, format: Format) -> Frame:
        return replace(super().frame(format), opening=())


@pytest.mark.parametrize(
    ("name", "bits"),
    [
        *(("pot.000.keys", 16), ("pot.001.values", 16), ("pot.000.anchors", 16), ("last", 16)),
        *(("pot.000.offset", 8), ("pot.001.key_scale", 8), ("pot.000.value_scale", 8)),
    ],
)
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_pot_of_no_numbers_ends_nobody_else_s_answer(
    tmp_path: Path, name: str, bits: int, value: float
) -> None:
    async def work() -> None:
        sizes = {"slots": 2, "pot_bits": bits}
        async with serving(tmp_path, tail="distil", **sizes) as (scheduler, _):  # so that there are anchors
            await served(scheduler, read_into_pot(tmp_path / "a", LONG))
            store = scheduler.store.space("t")
            state, card = store.load("book")
            tensors = {**state.tensors, name: state.tensors[name].clone()}
            tensors[name].view(-1)[-1] = value
            store.save("bad", State(tensors, state.numbers), card)
            options = replace(OPTIONS, generation=Generation(60, temperature=1.0))
            other = asyncio.create_task(served(scheduler, ChatRequest("u", [Message("user", "hi")], options)))
            with pytest.raises(StoreError, match="numbers that are none"):
                await served(scheduler, replace(chat("what?", pot="bad"), options=options))
            with pytest.raises(StoreError, match="numbers that are none"):
                scheduler.words("t", "bad").result(20)
            assert (await other)[0]

    go(work)


def test_numbers_that_overflow_end_their_own_request_alone(tmp_path: Path) -> None:
    async def work() -> None:
        async with serving(tmp_path, slots=2) as (scheduler, _):
            await served(scheduler, read_into_pot(tmp_path / "a", LONG))
            store = scheduler.store.space("t")
            state, card = store.load("book")
            huge = {**state.tensors, "pot.001.values": torch.full_like(state.tensors["pot.001.values"], 3e38)}
            store.save("bad", State(huge, state.numbers), card)
            options = replace(OPTIONS, generation=Generation(60, temperature=1.0))
            other = asyncio.create_task(served(scheduler, ChatRequest("u", [Message("user", "hi")], options)))
            with pytest.raises(InputError, match="overflow"):
                await served(scheduler, replace(chat("what?", pot="bad"), options=options))
            assert (await other)[0]

    go(work)


def test_a_pot_larger_than_any_is_not_loaded(tmp_path: Path) -> None:
    async def work() -> None:
        async with serving(tmp_path) as (scheduler, _):
            await served(scheduler, read_into_pot(tmp_path / "a", LONG))
            store = scheduler.store.space("t")
            state, card = store.load("book")
            assert card.bytes <= scheduler.memory.largest
            more = {**state.tensors, "more": torch.zeros(scheduler.memory.largest, dtype=torch.uint8)}
            store.save("bad", State(more, state.numbers), card)
            with pytest.raises(StoreError, match="larger than any"):
                await served(scheduler, chat("what?", pot="bad"))

    go(work)


def test_a_pot_replaced_while_it_is_loaded_is_not_taken_for_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work() -> None:
        async with serving(tmp_path) as (scheduler, _):
            await served(scheduler, read_into_pot(tmp_path / "a", LONG))
            store = scheduler.library("t").store
            state, card = store.load("book")
            monkeypatch.setattr(store, "load", lambda name: (state, replace(card, weights="f" * 64)))
            with pytest.raises(StoreError, match="was replaced"):
                await served(scheduler, chat("what?", pot="book"))

    go(work)


def test_who_waits_for_a_slot_does_not_make_the_scheduler_spin(tmp_path: Path) -> None:
    async def work() -> None:
        async with serving(tmp_path, slots=1, queue=2) as (scheduler, _):
            slow, rounds, step = threading.Event(), [0], scheduler.step

            def counted() -> None:
                rounds[0] += 1
                step()

            scheduler.step = counted  # type: ignore[method-assign]
            scheduler.background(slow.wait, 60)
            saving = asyncio.create_task(served(scheduler, read_into_pot(tmp_path / "a", "text")))
            await comes_true(lambda: scheduler.state()["slots_busy"] == 1)
            waiting = asyncio.create_task(served(scheduler, chat("x")))
            leaving = scheduler.submit(chat("y"))
            await comes_true(lambda: scheduler.state()["queued"] == 2)
            before = rounds[0]
            await asyncio.sleep(0.3)
            assert rounds[0] - before < 5
            leaving.cancel()  # who gives up is let go at once, though no slot is free
            await comes_true(lambda: scheduler.state()["queued"] == 1)
            assert not slow.is_set()
            assert not saving.done()
            slow.set()
            await asyncio.gather(saving, waiting)

    go(work)


def test_told_to_stop_while_it_warms_up_it_never_starts(tmp_path: Path) -> None:
    model = Slow()
    engine = Engine("toy", "chat", model, Endless(), "float32", "0" * 64)  # type: ignore[arg-type]
    recipe = Recipe.named(capacity=CAPACITY, format="chat", catalyst="general short")
    scheduler = Scheduler(engine, recipe, open_store(str(tmp_path)), Settings())
    model.may.clear()
    starting = threading.Thread(target=scheduler.start)
    starting.start()
    scheduler.stop(5)
    model.may.set()
    starting.join(20)
    assert not starting.is_alive()
    assert not scheduler.ready
    assert "scheduler" not in [thread.name for thread in threading.enumerate()]


def test_an_error_before_a_request_begins_is_that_request_s_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work() -> None:
        async with serving(tmp_path) as (scheduler, _):
            await served(scheduler, read_into_pot(tmp_path / "a", LONG))
            library = scheduler.library("t")
            monkeypatch.setattr(library, "version", lambda name: 1 / 0)
            with pytest.raises(FaultError):
                await served(scheduler, chat("what?", pot="book"))
            assert scheduler.failure == ""
            assert (await served(scheduler, chat("x")))[0]

    go(work)


def test_a_store_far_away_keeps_nobody_else_waiting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work() -> None:
        async with serving(tmp_path, slots=2) as (scheduler, _):
            await served(scheduler, read_into_pot(tmp_path / "a", LONG))
            library, asked, answers = scheduler.library("t"), threading.Event(), threading.Event()
            version = library.version

            def far(name: str) -> str:
                asked.set()
                answers.wait(60)
                return version(name)

            monkeypatch.setattr(library, "version", far)
            about = asyncio.create_task(served(scheduler, chat("what?", pot="book")))
            await asyncio.to_thread(asked.wait, 60)
            assert (await asyncio.wait_for(served(scheduler, chat("x")), 60))[0]
            assert scheduler.state()["slots_busy"] == 1
            answers.set()
            assert (await about)[0]

    go(work)


def test_who_leaves_before_the_store_answers_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work() -> None:
        async with serving(tmp_path, slots=1) as (scheduler, _):
            await served(scheduler, read_into_pot(tmp_path / "a", LONG))
            library, asked, answers = scheduler.library("t"), threading.Event(), threading.Event()
            monkeypatch.setattr(library, "version", lambda _: asked.set() or str(answers.wait(60)))
            leaving = scheduler.submit(chat("what?", pot="book"))
            await asyncio.to_thread(asked.wait, 60)
            leaving.cancel()
            answers.set()
            assert (await served(scheduler, chat("x")))[0]
            assert (scheduler.slots.busy, scheduler.state()["slots_busy"]) == (0, 0)

    go(work)


def test_a_talk_about_a_pot_goes_on_while_the_disk_is_busy(tmp_path: Path) -> None:
    async def work() -> None:
        async with serving(tmp_path) as (scheduler, _):
            await served(scheduler, read_into_pot(tmp_path / "a", LONG))
            said, _ = await served(scheduler, chat("what?", pot="book"))
            busy = threading.Event()
            try:
                scheduler.background(busy.wait, 60)
                _, events = await served(scheduler, chat("what?", said, "and?", pot="book"))
                assert events[-1].cached > 0
                assert not busy.is_set()
            finally:
                busy.set()

    go(work)


def test_an_empty_prompt_is_refused(tmp_path: Path) -> None:
    async def work() -> None:
        engine = Engine("toy", "plain", Slow(), Bare(), "float32", "0" * 64)  # type: ignore[arg-type]
        recipe = Recipe.named(capacity=CAPACITY, format="plain", catalyst="general short")
        scheduler = Scheduler(engine, recipe, open_store(str(tmp_path)), Settings())
        scheduler.start()
        try:
            for request in (CompletionRequest("t", "", OPTIONS), chat("")):
                with pytest.raises(InputError, match="nothing to answer"):
                    await served(scheduler, request)
            assert (await served(scheduler, chat("x")))[0]
        finally:
            await asyncio.to_thread(scheduler.stop, 5)

    go(work)


def test_what_a_pot_held_before_an_append_is_not_counted_again(tmp_path: Path) -> None:
    async def work() -> None:
        async with serving(tmp_path) as (scheduler, _):
            await served(scheduler, read_into_pot(tmp_path / "a", LONG))
            _, events = await served(scheduler, read_into_pot(tmp_path / "b", " More." * 20, append=True))
            metrics = Metrics(scheduler.state)
            counts = RequestMetrics(metrics, 0.0)
            for event in events:
                if isinstance(event, Reading):
                    assert event.cached == len(LONG)
                    counts.see(event)
            assert metrics.registry.get_sample_value("infinipot_tokens_read_total") == 122

    go(work)


def test_a_request_that_was_told_of_a_failure_can_still_be_given_up() -> None:
    async def work() -> None:
        handles = [RequestHandle(chat("x")) for _ in range(2)]
        handles[0].put(StoreError("the server is closing"))
        handles[1].put(Answered("stop", 1, 0, 4))
        with pytest.raises(StoreError):
            [event async for event in handles[0]]
        assert [event async for event in handles[1]]
        for handle in handles:
            handle.cancel()
        assert [handle.cancelled for handle in handles] == [True, False]  # an answer that is whole needs none

    go(work)


def test_pieces_that_a_slow_listener_missed_come_as_one_and_nothing_else_does() -> None:
    async def work() -> None:
        handle = RequestHandle(chat("x"))
        end = Answered("stop", 1, 0, 4)
        for event in (
            Piece("a", (Scored("a", -1.0),)),
            Piece("b"),
            Queued(1, 0.0),
            Piece("c"),
            Piece("d"),
            end,
        ):
            handle.put(event)
        await asyncio.sleep(0)
        found = [event async for event in handle]
        assert found == [Piece("ab", (Scored("a", -1.0),)), Queued(1, 0.0), Piece("cd"), end]
        handle = RequestHandle(chat("x"))
        handle.put(Piece("a"))
        handle.put(FaultError("no"))
        await asyncio.sleep(0)
        heard = aiter(handle)
        assert await anext(heard) == Piece("a")
        with pytest.raises(FaultError):
            await anext(heard)

    go(work)
