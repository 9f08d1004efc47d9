"""Tenants take turns, texts are read between others' tokens, and who waits is told the truth."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from infinipot.reading.sampling import Generation
from infinipot.reading.session import PotSession
from infinipot.server.scheduler.handlers import LONG as LONG_TEXT
from infinipot.server.scheduler.queue import FairQueue, expected_waits
from infinipot.server.scheduler.requests import (
    Answered,
    BusyError,
    ChatRequest,
    CompletionRequest,
    FaultError,
    Kept,
    Message,
    Piece,
    Queued,
    Reading,
    RequestHandle,
)
from infinipot.server.scheduler.scheduler import Scheduler
from infinipot.server.settings import Keys
from waiting import comes_true

from .test_scheduler import LONG, OPTIONS, Endless, chat, go, read_into_pot, served, serving

TWO_KEYS: Any = Keys.of(["k" * 16, "l" * 16])


def waiting(*tenants: str) -> tuple[FairQueue, list[RequestHandle]]:
    queue = FairQueue()
    handles = [RequestHandle(ChatRequest(tenant, [Message("user", "x")])) for tenant in tenants]
    for handle in handles:
        queue.append(handle)
    return queue, handles


async def waits(scheduler: Scheduler, queued: int) -> None:
    """Return once one request is served and so many wait."""
    await comes_true(lambda: (scheduler.state()["slots_busy"], scheduler.state()["queued"]) == (1, queued))


def order(queue: FairQueue, **at_work: int) -> str:
    return "".join(handle.request.tenant for handle in queue.order(at_work))


def test_tenants_take_turns() -> None:
    async def work() -> None:
        queue, handles = waiting(*"aaaabbc")
        assert order(queue) == "abcabaa"
        assert order(queue, a=1).startswith("bca")
        first = next(queue.order({}))
        assert first is handles[0]  # a tenant's own come in order
        queue.remove(first)
        queue.note_served("a")
        assert order(queue) == "bcabaa"  # who was served goes behind those who were not
        assert len(queue) == 6

    go(work)


def test_the_order_is_that_of_serving_one_by_one() -> None:
    """The slow twin: take the first, note it, ask again."""

    async def work() -> None:
        queue, _ = waiting(*"aabacbbadda")
        told, at_work, found = order(queue, a=1), {"a": 1}, ""
        while len(queue):
            first = next(queue.order(at_work))
            queue.remove(first)
            queue.note_served(first.request.tenant)
            at_work[first.request.tenant] = at_work.get(first.request.tenant, 0) + 1
            found += first.request.tenant
        assert found == told

    go(work)


def test_the_last_places_are_for_who_has_none() -> None:
    async def work() -> None:
        queue, _ = waiting(*"aaaaaa")
        assert not queue.has_room("a", 8, shared=True)
        assert queue.has_room("b", 8, shared=True)
        assert queue.has_room("a", 8, shared=False)
        assert not queue.has_room("b", 6, shared=True)

    go(work)


@pytest.mark.parametrize(
    ("left", "takes", "slots", "expected"),
    [
        ([5.0], [1.0, 1.0], 1, [5.0, 6.0]),
        ([5.0, 2.0], [1.0, 10.0, 1.0], 2, [2.0, 3.0, 5.0]),
        ([5.0], [1.0], 2, [0.0]),
        ([], [3.0, 3.0], 1, [0.0, 3.0]),
    ],
)
def test_expected_waits(left: list[float], takes: list[float], slots: int, expected: list[float]) -> None:
    assert expected_waits(left, takes, slots) == expected


def test_one_tenant_s_many_do_not_keep_another_waiting(tmp_path: Path) -> None:
    ended: list[str] = []

    async def one(scheduler: Any, tenant: str) -> None:
        await served(scheduler, chat("x", tenant=tenant, keep=False))
        ended.append(tenant)

    async def work() -> None:
        async with serving(tmp_path, slots=1, conversations=0, queue=16) as (scheduler, model):
            model.may.clear()
            many = [asyncio.create_task(one(scheduler, "many")) for _ in range(8)]
            await waits(scheduler, 7)
            few = asyncio.create_task(one(scheduler, "few"))
            await waits(scheduler, 8)
            model.may.set()
            await asyncio.gather(*many, few)

    go(work)
    assert ended.index("few") <= 1, ended


def test_a_tenant_who_fills_the_queue_leaves_room_for_others(tmp_path: Path) -> None:
    async def work() -> None:
        sizes: dict[str, Any] = {"slots": 1, "conversations": 0, "queue": 4, "keys": TWO_KEYS}
        async with serving(tmp_path, **sizes) as (scheduler, model):
            model.may.clear()
            tasks = [asyncio.create_task(served(scheduler, chat("x", tenant="a"))) for _ in range(4)]
            await waits(scheduler, 3)
            with pytest.raises(BusyError, match="try again"):
                scheduler.submit(chat("x", tenant="a"))
            tasks.append(asyncio.create_task(served(scheduler, chat("x", tenant="b"))))
            await waits(scheduler, 4)
            model.may.set()
            await asyncio.gather(*tasks)

    go(work)


def test_uploads_leave_a_slot_to_questions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work() -> None:
        async with serving(tmp_path, slots=2, queue=8) as (scheduler, _):
            library, may_end = scheduler.library("t"), threading.Event()
            save = library.save
            monkeypatch.setattr(library, "save", lambda *given: may_end.wait(60) and save(*given))
            texts = [read_into_pot(tmp_path / f"t{n}", LONG * 4, name=f"p{n}") for n in range(2)]
            uploads = [asyncio.create_task(served(scheduler, text)) for text in texts]
            await waits(scheduler, 1)
            _, events = await served(scheduler, chat("a question", keep=False))
            assert isinstance(events[-1], Answered)
            assert not any(upload.done() for upload in uploads)
            assert not may_end.is_set()
            may_end.set()
            await asyncio.gather(*uploads)

    go(work)


def test_texts_are_read_in_turns_between_tokens(tmp_path: Path) -> None:
    """While somebody answers, all that is read between two of the tokens is one chunk, whoever reads."""
    passes: list[int] = []

    async def work() -> None:
        async with serving(tmp_path, slots=5, queue=8, read_chunk=16) as (scheduler, model):
            answer = replace(chat("x"), options=replace(OPTIONS, generation=Generation(400)))
            answering = scheduler.submit(answer)
            async for event in answering:
                if isinstance(event, Piece):
                    break
            model.fails = lambda tokens: passes.append(tokens)  # type: ignore[func-returns-value]
            texts = [read_into_pot(tmp_path / f"t{n}", LONG, name=f"p{n}") for n in range(3)]
            await asyncio.gather(*(served(scheduler, text) for text in texts))
            answering.cancel()

    go(work)
    between, runs = 0, []
    for tokens in passes:
        if tokens == 1:
            runs.append(between)
            between = 0
        else:
            between += 1
    reading = [run for run in runs if run]
    assert len(reading) > 20
    assert sorted(reading)[int(0.95 * len(reading))] == 1, runs


def test_who_waits_is_told_the_place_and_a_likely_time(tmp_path: Path) -> None:
    async def work() -> None:
        async with serving(tmp_path, slots=1, conversations=0, queue=8) as (scheduler, model):
            first = asyncio.create_task(served(scheduler, chat("x", keep=False)))
            await first
            assert not [event for event in first.result()[1] if isinstance(event, Queued)]  # a slot was free
            model.may.clear()
            tasks = [asyncio.create_task(served(scheduler, chat("x", keep=False))) for _ in range(4)]
            await waits(scheduler, 3)
            model.may.set()
            found = [(await task)[1] for task in tasks]
        places = [[event.position for event in events if isinstance(event, Queued)] for events in found]
        assert places[0] == []
        assert [one[-1] for one in places[1:]] == [1, 1, 1]
        assert all(one == sorted(one, reverse=True) for one in places)
        for events in found:
            kinds = [type(event) for event in events]
            assert Queued not in kinds[kinds.index(Reading) :]  # who reads waits no more
            assert all(event.wait_s >= 0 for event in events if isinstance(event, Queued))

    go(work)


def test_reading_a_file_begins_with_an_event(tmp_path: Path) -> None:
    """Long before the first chunk is read, the caller knows that nothing is waited for."""

    async def work() -> None:
        async with serving(tmp_path, slots=1) as (scheduler, _):
            _, events = await served(scheduler, read_into_pot(tmp_path / "t", LONG))
        assert isinstance(events[0], Reading)
        assert (events[0].bytes, events[0].processed) == (0, 0)

    go(work)


class Watched(Endless):
    """Remembers on which thread texts were split into tokens."""

    def __init__(self) -> None:
        self.threads: dict[int, str] = {}

    def encode(self, text: str) -> list[int]:
        self.threads[len(text)] = threading.current_thread().name
        return super().encode(text)


def test_long_texts_are_split_into_tokens_while_others_get_theirs(tmp_path: Path) -> None:
    tokenizer = Watched()
    long, short = "x" * (LONG_TEXT + 1), "x" * 301
    for request in (chat(long), chat(short), CompletionRequest("t", long + "y", OPTIONS)):

        async def work(request: Any = request) -> None:
            async with serving(tmp_path, tokenizer=tokenizer, slots=1) as (scheduler, model):
                model.fails = lambda tokens: ValueError() if tokens > 1 else None
                with pytest.raises(FaultError):  # as soon as it is read: that takes too long here
                    await served(scheduler, request)

        go(work)
    assert tokenizer.threads[len(long)].startswith("pots")
    assert tokenizer.threads[len(long) + 1].startswith("pots")
    assert tokenizer.threads[len(short)] == "scheduler"


def test_a_question_begins_in_a_step_in_which_no_text_is_read(tmp_path: Path) -> None:
    """Texts that are never read between tokens do not keep a short question from its answer."""

    async def work() -> None:
        async with serving(tmp_path, slots=3, queue=8) as (scheduler, _model):
            answer = replace(chat("x"), options=replace(OPTIONS, generation=Generation(4000)))
            answering = scheduler.submit(answer)
            async for event in answering:
                if isinstance(event, Piece):
                    break
            scheduler._pace.chunk = lambda answering, running: 0 if answering else 2048  # type: ignore[method-assign]
            upload = scheduler.submit(read_into_pot(tmp_path / "t", LONG))
            _, events = await served(scheduler, chat("a short question", keep=False))
            assert isinstance(events[-1], Answered)
            assert scheduler.state()["slots_busy"] == 2  # who answers, and the text that waits
            assert not [
                one for one in scheduler.state()["slots"] if one.get("kind") == "reading" and one["fill"]
            ]
            answering.cancel()
            assert isinstance([event async for event in upload][-1], Kept)

    go(work)


def test_of_many_who_ask_at_once_the_first_has_an_answer_before_the_last_is_read(tmp_path: Path) -> None:
    seen: list[int] = []

    async def work() -> None:
        async with serving(tmp_path, slots=24, queue=24) as (scheduler, model):
            model.may.clear()
            model.fails = lambda tokens: seen.append(tokens)  # type: ignore[func-returns-value]
            asked = [asyncio.ensure_future(served(scheduler, chat(f"question {n}"))) for n in range(24)]
            await asyncio.sleep(0.2)
            model.may.set()
            answers = await asyncio.gather(*asked)
            assert all(isinstance(events[-1], Answered) for _, events in answers)

    go(work)
    last = max(at for at, tokens in enumerate(seen) if tokens > 1)
    assert 1 in seen[:last]


@pytest.mark.parametrize("pot", ["", "book"])
def test_short_prompts_join_the_answers_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pot: str
) -> None:
    """Where answers are captured, many who ask at once wait for none of the others: no pass for one alone."""
    monkeypatch.setattr(PotSession, "joins_batches", True)
    about = {"pot": pot, "tenant": "t"} if pot else {}
    asked = [chat(f"number {n}?", **{"tenant": f"t{n}", "keep": False, **about}) for n in range(12)]

    async def work() -> None:
        async with serving(tmp_path, slots=1) as (scheduler, _):
            await served(scheduler, read_into_pot(tmp_path / "a", LONG))
            alone = [(await served(scheduler, one))[0] for one in asked]
        async with serving(tmp_path, slots=16, queue=16) as (scheduler, model):
            lengths: list[int] = []
            model.fails = lengths.append
            model.may.clear()  # all are there before the first is served
            pending = [asyncio.create_task(served(scheduler, one)) for one in asked]
            await comes_true(lambda: len(scheduler._accepted()) == len(asked))
            model.may.set()
            assert [(await one)[0] for one in pending] == alone
            assert set(lengths) == {1}
            assert scheduler.slots.busy == 0

    go(work)
