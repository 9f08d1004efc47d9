"""A small server's scheduler under load with its slots on a card: every answer is the one given alone.

HTTP is not needed for it; the front end is tested on any machine.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable, Coroutine, Iterable
from pathlib import Path
from typing import Any

import torch

from gpu.random_models import CAPACITY, Endless, model
from infinipot.engine import Engine
from infinipot.reading.sampling import Generation
from infinipot.recipes.recipe import Recipe
from infinipot.server.scheduler.requests import AnswerOptions, ChatRequest, Message, Piece
from infinipot.server.scheduler.scheduler import Scheduler
from infinipot.server.settings import Settings
from infinipot.store import LocalStore

OPTIONS = AnswerOptions(Generation(48), catalyst="general short")
TEXTS = [
    f"Tenant {n}. " + f"The sea was calm on day {n}, and nobody spoke. " * (10 + 25 * n) for n in range(8)
]


class Letters(Endless):
    """Spells every token as one character, whatever the model says."""

    def encode(self, text: str) -> list[int]:
        return [ord(letter) for letter in text]

    def decode(self, ids: Iterable[int]) -> str:
        return "".join(map(chr, ids))


async def answer(scheduler: Scheduler, text: str) -> str:
    request = ChatRequest(f"tenant-{len(text)}", [Message("user", text)], OPTIONS, keep=False)
    events = [event async for event in scheduler.submit(request)]
    return "".join(event.text for event in events if isinstance(event, Piece))


def serving(
    work: Callable[[Scheduler], Coroutine[Any, Any, None]], slots: int, dtype: torch.dtype = torch.float32
) -> None:
    tokenizer: Any = Letters()
    engine = Engine("random", "chat", model(dtype), tokenizer, str(dtype), "0" * 64)
    recipe = Recipe.named(capacity=CAPACITY, format="chat", catalyst="general short")
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings(slots=slots, conversations=1)
        scheduler = Scheduler(engine, recipe, LocalStore(Path(folder)), settings)
        scheduler.start()
        try:
            asyncio.run(asyncio.wait_for(work(scheduler), 240))
        finally:
            scheduler.stop(5)


def test_many_at_once_are_answered_as_alone() -> None:
    alone: list[str] = []

    async def one_by_one(scheduler: Scheduler) -> None:
        alone.extend([await answer(scheduler, text) for text in TEXTS])

    async def at_once(scheduler: Scheduler) -> None:
        for _ in range(3):
            assert await asyncio.gather(*(answer(scheduler, text) for text in TEXTS)) == alone
            assert scheduler.slots.busy == 0

    serving(one_by_one, slots=1)
    serving(at_once, slots=4)


def test_memory_does_not_grow_with_requests() -> None:
    async def again_and_again(scheduler: Scheduler) -> None:
        held = []
        for _ in range(12):
            await asyncio.gather(*(answer(scheduler, text) for text in TEXTS))
            torch.cuda.synchronize()
            held.append(torch.cuda.memory_allocated())
        assert held[-1] <= held[6] + 2**20  # every slot has met every text by then: all is captured

    serving(again_and_again, slots=4)
