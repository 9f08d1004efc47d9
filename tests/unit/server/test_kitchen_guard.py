"""What must not end, stall or swell the kitchen: strangers' pots, waiting orders, an early end."""

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
from infinipot.server.kitchen import Kitchen
from infinipot.server.metrics import Metrics
from infinipot.server.orders import Continue, FaultError, Message, Reading, Talk
from infinipot.store import open_store
from infinipot.text.tokenizer import Format, Frame

from .test_kitchen import CAPACITY, LONG, MANNER, Endless, Slow, brew, go, served, serving, talk


class Bare(Endless):
    """Nothing goes before a text."""

    def frame(self, format: Format) -> Frame:
        return replace(super().frame(format), opening=())


@pytest.mark.parametrize("name", ["pot.000.keys", "pot.001.values", "pot.000.anchors", "last"])
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_pot_of_no_numbers_ends_nobody_else_s_answer(tmp_path: Path, name: str, value: float) -> None:
    async def work() -> None:
        async with serving(tmp_path, tail="distil", slots=2) as (kitchen, _):  # so that there are anchors
            await served(kitchen, brew(tmp_path / "a", LONG))
            store = kitchen.store.space("t")
            state, card = store.load("book")
            tensors = {**state.tensors, name: state.tensors[name].clone()}
            tensors[name].view(-1)[-1] = value
            store.save("bad", State(tensors, state.numbers), card)
            options = replace(MANNER, generation=Generation(60, temperature=1.0))
            other = asyncio.create_task(served(kitchen, Talk("u", [Message("user", "hi")], options)))
            with pytest.raises(StoreError, match="numbers that are none"):
                await served(kitchen, replace(talk("what?", pot="bad"), options=options))
            with pytest.raises(StoreError, match="numbers that are none"):
                kitchen.words("t", "bad")
            assert (await other)[0]

    go(work)


def test_numbers_that_overflow_end_their_own_order_alone(tmp_path: Path) -> None:
    async def work() -> None:
        async with serving(tmp_path, slots=2) as (kitchen, _):
            await served(kitchen, brew(tmp_path / "a", LONG))
            store = kitchen.store.space("t")
            state, card = store.load("book")
            huge = {**state.tensors, "pot.001.values": torch.full_like(state.tensors["pot.001.values"], 3e38)}
            store.save("bad", State(huge, state.numbers), card)
            options = replace(MANNER, generation=Generation(60, temperature=1.0))
            other = asyncio.create_task(served(kitchen, Talk("u", [Message("user", "hi")], options)))
            with pytest.raises(InputError, match="overflow"):
                await served(kitchen, replace(talk("what?", pot="bad"), options=options))
            assert (await other)[0]

    go(work)


def test_a_pot_larger_than_any_is_not_loaded(tmp_path: Path) -> None:
    async def work() -> None:
        async with serving(tmp_path) as (kitchen, _):
            await served(kitchen, brew(tmp_path / "a", LONG))
            store = kitchen.store.space("t")
            state, card = store.load("book")
            assert card.bytes <= kitchen.memory.largest
            more = {**state.tensors, "more": torch.zeros(kitchen.memory.largest, dtype=torch.uint8)}
            store.save("bad", State(more, state.numbers), card)
            with pytest.raises(StoreError, match="larger than any"):
                await served(kitchen, talk("what?", pot="bad"))

    go(work)


def test_a_pot_replaced_while_it_is_loaded_is_not_taken_for_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work() -> None:
        async with serving(tmp_path) as (kitchen, _):
            await served(kitchen, brew(tmp_path / "a", LONG))
            store = kitchen._shelf("t")._store
            state, card = store.load("book")
            monkeypatch.setattr(store, "load", lambda name: (state, replace(card, weights="f" * 64)))
            with pytest.raises(StoreError, match="was replaced"):
                await served(kitchen, talk("what?", pot="book"))

    go(work)


def test_who_waits_for_a_slot_does_not_make_the_kitchen_spin(tmp_path: Path) -> None:
    async def work() -> None:
        async with serving(tmp_path, slots=1, queue=2) as (kitchen, _):
            slow, rounds, step = threading.Event(), [0], kitchen._round

            def counted() -> None:
                rounds[0] += 1
                step()

            kitchen._round = counted  # type: ignore[method-assign]
            kitchen._disk.submit(slow.wait, 20)
            saving = asyncio.create_task(served(kitchen, brew(tmp_path / "a", "text")))
            await asyncio.sleep(0.1)
            waiting = asyncio.create_task(served(kitchen, talk("x")))
            leaving = kitchen.submit(talk("y"))
            await asyncio.sleep(0.1)
            before = rounds[0]
            await asyncio.sleep(0.3)
            assert rounds[0] - before < 5
            leaving.cancel()  # who gives up is let go at once, though no slot is free
            for _ in range(100):
                await asyncio.sleep(0.01)
                if kitchen.state()["queued"] == 1:
                    break
            assert kitchen.state()["queued"] == 1
            slow.set()
            await asyncio.gather(saving, waiting)

    go(work)


def test_told_to_stop_while_it_warms_up_it_never_starts(tmp_path: Path) -> None:
    model = Slow()
    engine = Engine("toy", "chat", model, Endless(), "float32", "0" * 64)  # type: ignore[arg-type]
    recipe = Recipe.named(capacity=CAPACITY, format="chat", catalyst="general short")
    kitchen = Kitchen(engine, recipe, open_store(str(tmp_path)))
    model.may.clear()
    starting = threading.Thread(target=kitchen.start)
    starting.start()
    kitchen.stop(5)
    model.may.set()
    starting.join(20)
    assert not starting.is_alive()
    assert not kitchen.ready
    assert not kitchen._thread.is_alive()


def test_an_error_before_an_order_begins_is_that_order_s_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work() -> None:
        async with serving(tmp_path) as (kitchen, _):
            await served(kitchen, brew(tmp_path / "a", LONG))
            shelf = kitchen._shelf("t")
            monkeypatch.setattr(shelf, "version", lambda name: 1 / 0)
            with pytest.raises(FaultError):
                await served(kitchen, talk("what?", pot="book"))
            assert kitchen.alive
            assert (await served(kitchen, talk("x")))[0]

    go(work)


def test_an_empty_prompt_is_refused(tmp_path: Path) -> None:
    async def work() -> None:
        engine = Engine("toy", "plain", Slow(), Bare(), "float32", "0" * 64)  # type: ignore[arg-type]
        recipe = Recipe.named(capacity=CAPACITY, format="plain", catalyst="general short")
        kitchen = Kitchen(engine, recipe, open_store(str(tmp_path)))
        kitchen.start()
        try:
            for order in (Continue("t", "", MANNER), talk("")):
                with pytest.raises(InputError, match="nothing to answer"):
                    await served(kitchen, order)
            assert (await served(kitchen, talk("x")))[0]
        finally:
            await asyncio.to_thread(kitchen.stop, 5)

    go(work)


def test_what_a_pot_held_before_an_append_is_not_counted_again(tmp_path: Path) -> None:
    async def work() -> None:
        async with serving(tmp_path) as (kitchen, _):
            await served(kitchen, brew(tmp_path / "a", LONG))
            _, events = await served(kitchen, brew(tmp_path / "b", " More." * 20, append=True))
            metrics = Metrics(kitchen.state)
            watch = metrics.watch()
            for event in events:
                if isinstance(event, Reading):
                    assert event.cached == len(LONG)
                    watch.see(event)
            assert metrics.registry.get_sample_value("infinipot_tokens_read_total") == 122

    go(work)
