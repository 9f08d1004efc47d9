"""Memory that runs out ends one request with one honest line; the others say what they would have said."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from infinipot.errors import ConfigError
from infinipot.models.memory import trim
from infinipot.reading import next_tokens
from infinipot.reading.sampling import Generation
from infinipot.server.http.errors import refusal
from infinipot.server.scheduler import memory_bound
from infinipot.server.scheduler.memory_bound import FLOOR, TIDY, MemoryBound
from infinipot.server.scheduler.requests import (
    Answered,
    ChatRequest,
    CompletionRequest,
    FaultError,
    MemoryFaultError,
    Request,
)
from infinipot.server.scheduler.scheduler import Scheduler

from .test_scheduler import CAPACITY, LONG, OPTIONS, chat, go, served, serving

Fails = Callable[[torch.Tensor], bool]


def full() -> torch.cuda.OutOfMemoryError:
    return torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.\nGPU 0 has ...")


def limited(scheduler: Scheduler, fails: Fails) -> list[int]:
    """Let the model run out of memory where `fails` says so; returns how often it did, and was released."""
    model, counts = scheduler.engine.model, [0, 0]
    forward, release = model.forward, scheduler.memory.release

    def run(tokens: torch.Tensor, pot: Any) -> torch.Tensor:
        if fails(tokens):
            counts[0] += 1
            raise full()
        return forward(tokens, pot)

    def counted() -> None:
        counts[1] += 1
        release()

    model.forward = run  # type: ignore[method-assign]
    scheduler.memory.release = counted  # type: ignore[method-assign]
    scheduler._answers._release = counted
    return counts


def several(count: int = 4, tokens: int = 40, **more: Any) -> list[Request]:
    options = replace(OPTIONS, generation=Generation(tokens, **more))
    asked: list[Request] = [
        replace(chat(f"question {n}?", keep=False), options=options) for n in range(count)
    ]
    return asked


async def alone(tmp_path: Path, requests: list[Request]) -> list[str]:
    async with serving(tmp_path / "alone", slots=1, conversations=0) as (scheduler, _):
        return [(await served(scheduler, one))[0] for one in requests]


async def together(scheduler: Scheduler, requests: list[Request]) -> list[Any]:
    """What came of requests that were all there before the first of them answered."""
    scheduler.engine.model.may.clear()  # type: ignore[attr-defined]
    tasks = [asyncio.create_task(served(scheduler, one)) for one in requests]
    await asyncio.sleep(0.1)
    scheduler.engine.model.may.set()  # type: ignore[attr-defined]
    return await asyncio.gather(*tasks, return_exceptions=True)


@pytest.mark.parametrize("more", [{}, {"temperature": 0.8, "seed": 3, "top_p": 0.9, "logprobs": 2}])
def test_a_step_that_fails_once_is_made_again_and_nobody_notices(tmp_path: Path, more: dict) -> None:
    async def work() -> None:
        wanted = await alone(tmp_path, several(**more))
        calls = [0]

        def every_seventh(tokens: torch.Tensor) -> bool:
            calls[0] += tokens.shape[0] > 1
            return tokens.shape[0] > 1 and calls[0] % 7 == 0

        async with serving(tmp_path, slots=4, queue=8) as (scheduler, _):
            counts = limited(scheduler, every_seventh)
            found = await together(scheduler, several(**more))
        assert [text for text, _ in found] == wanted
        assert counts[0] > 3
        assert counts[1] == counts[0]

    go(work)


def test_memory_that_runs_out_after_drawing_draws_the_same_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn, calls, more = next_tokens.sample_rows, [0], {"temperature": 0.9, "seed": 7}

    def sometimes(*given: Any) -> torch.Tensor:
        found = drawn(*given)
        calls[0] += 1
        if calls[0] % 5 == 0:
            raise full()
        return found

    async def work() -> None:
        wanted = await alone(tmp_path, several(**more))
        async with serving(tmp_path, slots=4, queue=8) as (scheduler, _):
            monkeypatch.setattr(next_tokens, "sample_rows", sometimes)
            found = await together(scheduler, several(**more))
        assert [text for text, _ in found] == wanted
        assert calls[0] > 20

    go(work)


def test_what_never_fits_ends_the_latest_and_the_others_go_on(tmp_path: Path) -> None:
    async def work() -> None:
        wanted = await alone(tmp_path, several())
        async with serving(tmp_path, slots=4, queue=8) as (scheduler, _):
            limited(scheduler, lambda tokens: tokens.shape[0] > 2)
            found = await together(scheduler, several())
            kept = [one for one in found if not isinstance(one, BaseException)]
            assert len(kept) == 2
            for one, text in zip(found, wanted, strict=True):
                if isinstance(one, BaseException):
                    assert isinstance(one, MemoryFaultError)
                    assert "\n" not in str(one)
                    assert "2.00 GiB" not in str(one)  # nothing of our insides
                    assert (refusal(one).status, refusal(one).code) == (503, "out_of_memory")
                else:
                    assert one[0] == text
                    assert isinstance(one[1][-1], Answered)
            assert (scheduler.slots.busy, scheduler.failure) == (0, "")
            assert (await served(scheduler, several(1)[0]))[0] == wanted[0]  # the slot is as good as new

    go(work)


def test_reading_that_runs_out_of_memory_ends_its_own_request(tmp_path: Path) -> None:
    long = CompletionRequest("t", LONG * 3, OPTIONS)

    async def work() -> None:
        wanted = await alone(tmp_path, several(3))
        async with serving(tmp_path, slots=4, queue=8, read_chunk=128) as (scheduler, _):
            counts = limited(scheduler, lambda tokens: tokens.shape[1] > 100)
            found = await together(scheduler, [*several(3), long])
            assert isinstance(found.pop(), MemoryFaultError)
            assert [text for text, _ in found] == wanted
            assert counts == [1, 1]
            assert scheduler.slots.busy == 0
            assert all(slot.reader.pot.fill == 0 for slot in scheduler.slots.all if not slot.conversation)

    go(work)


def test_a_distillation_that_runs_out_of_memory_ends_its_own_answer(tmp_path: Path) -> None:
    """A pot that is full is distilled by itself, with the catalyst: a forward of one row and some tokens."""
    short, more = several(3, 40), replace(OPTIONS, generation=Generation(CAPACITY + 40))
    much = ChatRequest("t", chat("tell me everything").messages, more, keep=False)

    async def work() -> None:
        wanted = await alone(tmp_path, short)
        async with serving(tmp_path, slots=4, queue=8) as (scheduler, _):
            begun = [0]

            def distils(tokens: torch.Tensor) -> bool:
                begun[0] += tokens.shape[0] > 1 or tokens.shape[1] == 1
                return begun[0] > 60 and tokens.shape[1] > 1

            limited(scheduler, distils)
            found = await together(scheduler, [*short, much])
            assert isinstance(found.pop(), MemoryFaultError)
            assert [text for text, _ in found] == wanted

    go(work)


def test_an_error_that_is_not_memory_ends_all_that_took_part(tmp_path: Path) -> None:
    async def work() -> None:
        async with serving(tmp_path, slots=2, queue=8) as (scheduler, _):
            model = scheduler.engine.model
            forward = model.forward

            def broken(tokens: torch.Tensor, pot: Any) -> torch.Tensor:
                if tokens.shape[0] > 1:
                    raise ValueError("broken")
                return forward(tokens, pot)

            model.forward = broken  # type: ignore[method-assign]
            found = await together(scheduler, several(2))
            assert [type(one) for one in found] == [FaultError, FaultError]
            assert scheduler.slots.busy == 0

    go(work)


class FakeCard:
    """Memory of a card as numbers: weights and pots, what computations take, graphs beside."""

    def __init__(self, total: int, passing: int = 3 * 10**9) -> None:
        self.total, self.resting, self.passing = total, 20 * 10**9, passing
        self.beside_now, self.most = 10**9, 0
        self.released = 0

    def held(self) -> int:
        return self.resting

    def peak(self) -> int:
        return self.resting + self.passing

    def forget_peak(self) -> None:
        pass

    def beside(self) -> int:
        return self.beside_now

    def limit(self, most: int) -> None:
        self.most = most

    def release(self) -> None:
        self.released += 1


def measured(tmp_path: Path, card: FakeCard) -> MemoryBound:
    found: list[MemoryBound] = []

    async def work() -> None:
        async with serving(tmp_path, slots=2, conversations=2) as (scheduler, _):
            memory = MemoryBound(scheduler.engine, card)  # type: ignore[arg-type]
            found.append(memory)

            def warm_up() -> bool:
                card.beside_now += 5 * 10**8  # graphs
                return True

            memory.measure([slot.reader for slot in scheduler.slots.all], 2, warm_up)

    go(work)
    return found[0]


def test_a_card_s_bound_counts_computations_graphs_and_a_pot_on_its_way_and_is_set(tmp_path: Path) -> None:
    card = FakeCard(total=100 * 10**9)
    memory = measured(tmp_path, card)
    torchs = 23 * 10**9 + 3 * 10**8 + FLOOR + memory.largest
    assert card.most == torchs
    assert memory.bound == torchs + 15 * 10**8 + 5 * 10**8  # beside torch's, and as much for graphs again
    assert memory.numbers()["memory_bytes"] == 20 * 10**9 + 15 * 10**8
    assert memory.room() == (card.total - memory.bound) // memory.largest
    memory.release()
    assert card.released >= 1


def test_pots_that_do_not_fit_a_card_are_refused_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"4 pots .* do not fit: the card has 24.5 GB") as caught:
        measured(tmp_path, FakeCard(total=int(24.5 * 10**9)))
    assert caught.value.field == "slots"
    assert "smaller `capacity`" in caught.value.remedy  # toy pots are small: fewer would not help


def test_pots_that_would_fill_a_processor_s_memory_are_refused_after_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work() -> None:
        async with serving(tmp_path, slots=3, conversations=1) as (scheduler, _):
            readers = [slot.reader for slot in scheduler.slots.all]
            room = 2 * readers[0].pot.nbytes + FLOOR  # one of three is for a kept pot on its way in
            monkeypatch.setattr(memory_bound, "available", lambda: room)
            made: list[Any] = []
            with pytest.raises(ConfigError, match=r"4 pots .* do not fit: .* are free") as caught:
                scheduler.memory.make_pots(readers, made.append)
            assert made == readers[:1]
            assert caught.value.remedy == "use `slots` and `conversations` of 2 together"

    go(work)


def test_how_many_pots_fit_is_said_where_making_them_fails(tmp_path: Path) -> None:
    async def work() -> None:
        async with serving(tmp_path, slots=3, conversations=1) as (scheduler, _):
            readers = [slot.reader for slot in scheduler.slots.all]

            def third(reader: Any) -> None:
                if reader is readers[2]:
                    raise full()

            with pytest.raises(ConfigError) as caught:
                scheduler.memory.make_pots(readers, third)
            assert caught.value.remedy == "use `slots` and `conversations` of 2 together"

    go(work)


def test_freed_memory_is_given_back_every_few_requests_by_another_thread(tmp_path: Path) -> None:
    memory, given = measured(tmp_path, FakeCard(total=100 * 10**9)), list[object]()
    for _ in range(2 * TIDY + 1):
        memory.note_ended(given.append)
    assert given == [trim, trim]

    def closed(work: object) -> None:
        raise RuntimeError("cannot schedule new futures after shutdown")

    for _ in range(TIDY):
        memory.note_ended(closed)
