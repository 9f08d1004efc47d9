"""A server's scheduler on a card: one batch, one stage, a bound that holds, captures beside threads."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from gpu.random_models import DEVICE, model, plain_torch, read, reader, same_slots, tokens
from gpu.test_server_load import OPTIONS, TEXTS, answer, serving
from infinipot.core.cuda.capturing import apart_from_capture, to_host
from infinipot.core.cuda.graphs import Graphs
from infinipot.reading.sampling import Generation
from infinipot.reading.stage import Stage
from infinipot.reading.step_group import GRAPHS, SHARED
from infinipot.server.scheduler.requests import (
    ChatRequest,
    Kept,
    MemoryFaultError,
    Message,
    Piece,
    ReadIntoPot,
)
from infinipot.server.scheduler.scheduler import Scheduler

LONG = "The sea was calm, and nobody spoke of it. " * 400


@contextlib.contextmanager
def busy_threads() -> Iterator[list[int]]:
    """Threads that allocate, copy to and from the host and wait for the card, as fast as they can."""
    done, counts, errors = threading.Event(), [0, 0, 0], list[BaseException]()

    def allocates() -> None:
        while not done.is_set():
            torch.empty(2**20 + 4096 * (counts[0] % 64), device=DEVICE).fill_(1.0)
            counts[0] += 1

    def copies() -> None:
        here = torch.ones(2**20, device=DEVICE)
        while not done.is_set():
            assert float(to_host({"a": here})["a"].sum()) == 2**20
            counts[1] += 1

    def waits() -> None:
        while not done.is_set():
            with apart_from_capture():
                torch.cuda.synchronize()
                torch.cuda.empty_cache()
            counts[2] += 1
            time.sleep(0.001)

    def guarded(work: object) -> None:
        try:
            work()  # type: ignore[operator]
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(work,)) for work in (allocates, copies, waits)]
    for thread in threads:
        thread.start()
    try:
        yield counts
    finally:
        done.set()
        for thread in threads:
            thread.join()
    assert not errors, errors
    assert min(counts) > 3, counts


def test_capture_beside_threads_that_use_the_card() -> None:
    fast, slow = model(), model()
    plain = reader(slow, plain=True)
    ids = tokens(5000)
    with plain_torch():
        read(plain, ids)
        wanted = list(plain.generate([1, 2, 3], Generation(80)))
    with busy_threads():
        for _ in range(4):  # graphs of new pots, captured again and again
            captured = reader(fast)
            read(captured, ids)
            assert captured.session.graphs is not None
            assert captured.session.graphs.captured, "nothing was captured"
            assert captured.session.graphs.reason == ""
            assert list(captured.generate([1, 2, 3], Generation(80))) == wanted
            GRAPHS.pop(fast, None)


def test_cycles_of_many_pots_are_captured_once() -> None:
    on = model()
    shown = reader(on).session
    shown.graphs, shown.capture_after = Graphs(shown.pot, most=24), 1
    several = [reader(on) for _ in range(3)]
    for one in several:
        one.session.stage = Stage(shown)
    texts = [tokens(5000 + 300 * n, seed=n) for n in range(3)]
    turns = [one.reading_tokens([text]) for one, text in zip(several, texts, strict=True)]
    while turns:
        turns = [turn for turn in turns if next(turn, None) is not None]
    for one, text in zip(several, texts, strict=True):
        plain = reader(on, plain=True)
        with plain_torch():
            read(plain, text)
        assert same_slots(one, plain)
        assert one.session.graphs is not None
        assert not one.session.graphs.captured
    assert shown.graphs.captured


def test_64_slots_answer_as_one() -> None:
    texts = [f"{TEXTS[n % len(TEXTS)]} And number {n}?" for n in range(64)]
    alone: list[str] = []

    async def one_by_one(scheduler: Scheduler) -> None:
        alone.extend([await answer(scheduler, text) for text in texts[:48]])
        alone.extend([await drawn(scheduler, text) for text in texts[48:]])

    async def at_once(scheduler: Scheduler) -> None:
        plain = [answer(scheduler, text) for text in texts[:48]]
        assert await asyncio.gather(*plain, *(drawn(scheduler, text) for text in texts[48:])) == alone
        assert scheduler.slots.busy == 0

    serving(one_by_one, slots=1)
    serving(at_once, slots=64)


async def drawn(scheduler: Scheduler, text: str) -> str:
    """An answer whose tokens are drawn."""
    options = replace(OPTIONS, generation=Generation(48, temperature=0.8, seed=5, top_p=0.9, logprobs=2))
    request = ChatRequest(f"tenant-{len(text)}", [Message("user", text)], options, keep=False)
    events = [event async for event in scheduler.submit(request)]
    return "".join(event.text for event in events if isinstance(event, Piece))


def test_nothing_is_captured_while_64_slots_serve() -> None:
    """In bfloat16, where one graph of each size serves all pots."""
    texts = [f"{TEXTS[n % len(TEXTS)]} And number {n}?" for n in range(64)]

    async def at_once(scheduler: Scheduler) -> None:
        graphs = GRAPHS[scheduler.engine.model]
        sizes = {(key[1], key[-1]) for key in graphs.captured}  # type: ignore[index]
        alone = {(False, size) for size in (1, 2, 4, 8, 16, 32, 64)}
        assert sizes == alone | {(True, size) for size in SHARED}, sizes
        assert graphs.reason == ""
        said = await asyncio.gather(*(answer(scheduler, text) for text in texts))
        assert [len(one) for one in said] == [48] * 64
        assert {(key[1], key[-1]) for key in graphs.captured} == sizes  # type: ignore[index]
        for slot in scheduler.slots.all:
            assert slot.reader.session.graphs is not None
            assert not slot.reader.session.graphs.captured, "a pot has graphs of its own"
        state = scheduler.state()
        assert 0 < state["memory_bytes"] <= state["memory_bound_bytes"]
        assert scheduler.slots.busy == 0

    serving(at_once, slots=64, dtype=torch.bfloat16)


def test_what_is_above_the_bound_is_refused_and_the_server_goes_on() -> None:
    async def work(scheduler: Scheduler) -> None:
        wanted = [await answer(scheduler, text) for text in TEXTS[:3]]
        card = scheduler.memory.card
        assert card is not None
        beside = card.beside()  # other processes' memory too, which may grow
        with contextlib.suppress(torch.cuda.OutOfMemoryError):
            torch.empty(scheduler.memory.bound, dtype=torch.uint8, device=DEVICE)
            raise AssertionError("more than the bound was given out")
        hogs: list[torch.Tensor] = []
        with contextlib.suppress(torch.cuda.OutOfMemoryError):
            while True:
                hogs.append(torch.empty(2**20, dtype=torch.uint8, device=DEVICE))
        found = await asyncio.gather(*(answer(scheduler, text) for text in TEXTS[:3]), return_exceptions=True)
        for one, text in zip(found, wanted, strict=True):
            assert isinstance(one, MemoryFaultError) or one == text
        assert scheduler.failure == ""
        hogs.clear()
        assert await asyncio.gather(*(answer(scheduler, text) for text in TEXTS[:3])) == wanted
        assert scheduler.slots.busy == 0
        assert card.held() + beside <= scheduler.memory.bound

    serving(work, slots=4)


def test_pots_are_kept_by_another_thread_while_others_answer() -> None:
    async def work(scheduler: Scheduler) -> None:
        wanted = [await answer(scheduler, text) for text in TEXTS[:3]]
        with TemporaryDirectory() as folder:
            for n in range(4):
                path = Path(folder) / f"{n}.txt"
                path.write_text(LONG + str(n))
                digest = sha256(path.read_bytes()).hexdigest()
                request = ReadIntoPot("t", f"p{n}", path, "A text", digest, path.stat().st_size)
                asking = asyncio.gather(*(answer(scheduler, text) for text in TEXTS[:3]))
                events = [event async for event in scheduler.submit(request)]
                assert isinstance(events[-1], Kept)
                assert await asking == wanted

    serving(work, slots=4)
