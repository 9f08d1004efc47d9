"""A scheduler without a model, for tests of what is around one: every request gets the same answer."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import torch

from infinipot.core.state import State
from infinipot.errors import InfiniPotError
from infinipot.reading.held_words import Word
from infinipot.reading.progress import Progress
from infinipot.server.scheduler.pot_library import tenant_store
from infinipot.server.scheduler.requests import (
    Answered,
    Event,
    Kept,
    Piece,
    Reading,
    ReadIntoPot,
    Request,
    RequestHandle,
)
from infinipot.store import Card, PotStore
from infinipot.testing.tokenizer import ByteTokenizer

PIECES = ("Hello", ", ", "wörld", ' "quoted"\n', "\u2028 end")
SAID = "".join(PIECES)


class FakeScheduler:
    """What the server needs of a scheduler."""

    def __init__(self, store: PotStore) -> None:
        self.store = store
        self.ready, self.failure = False, ""
        self.pause = 0.0  # seconds between two events
        self.refuse: InfiniPotError | None = None  # instead of a handle
        self.fail: Exception | None = None  # after the first piece
        self.fail_first: Exception | None = None  # before anything
        self.requests: list[Request] = []
        self.running = 0
        self.cancelled = 0
        self.answer: list[Event] = [Piece(piece) for piece in PIECES]
        self.finish: Any = "stop"
        self.stopped: float | None = None
        self.finds = True  # words at once, else when `looking` is told
        self.looking: list[Future[list[Word]]] = []

    def start(self) -> None:
        self.ready = True

    def stop(self, wait_s: float) -> None:
        self.ready, self.stopped = False, wait_s

    def state(self) -> dict[str, Any]:
        return {
            "slots": [{"busy": False}] * 2,
            "slots_busy": self.running,
            "queued": 0,
            "capacity": 128,
            "pots_bytes": 1,
            "memory_bytes": 2,
            "memory_bound_bytes": 3,
            "conversations": 0,
            "model": "toy",
            "recipe": {},
        }

    def words(self, tenant: str, name: str) -> Future[list[Word]]:
        found: Future[list[Word]] = Future()
        self.looking.append(found)
        if self.finds:
            found.set_result([Word("Hello", 0, 5, 0.5, 1.25)])
        return found

    def check_grammar(self, grammar: Any) -> None:
        grammar.constraint(ByteTokenizer(), 260)

    def submit(self, request: Request) -> RequestHandle:
        if self.refuse is not None:
            raise self.refuse
        self.requests.append(request)
        handle = RequestHandle(request)
        self._task = asyncio.get_running_loop().create_task(self._play(handle))
        return handle

    async def _play(self, handle: RequestHandle) -> None:
        self.running += 1
        try:
            for event in self._events(handle.request):
                await asyncio.sleep(self.pause)
                if handle.cancelled:
                    self.cancelled += 1
                    return
                handle.put(event)
        except Exception as error:
            handle.put(error)
        finally:
            self.running -= 1

    def _events(self, request: Request) -> Any:
        if self.fail_first is not None:
            raise self.fail_first
        for done in (0, 4, 8):
            size = request.bytes if isinstance(request, ReadIntoPot) else 0
            yield Reading(Progress(done, done // 4, done, 128, 0.5), done, 0, 8, 0.25, size * done // 8)
        if isinstance(request, ReadIntoPot):
            assert request.file.stat().st_size == request.bytes
            if self.fail is not None:
                raise self.fail
            yield Kept(self._saved(request), request.name)
            return
        for piece in self.answer:
            yield piece
            if self.fail is not None:
                raise self.fail
        yield Answered(self.finish, 8, 2, len(self.answer))

    def _saved(self, request: ReadIntoPot) -> Card:
        state = State({"x": torch.zeros(4)}, {"n": 1})
        return tenant_store(self.store, request.tenant).save(
            request.name,
            state,
            card(request.title, request.sha256, request.bytes),
            request.replace or request.append,
        )


def card(title: str = "A text", sha256: str = "d" * 64, bytes: int = 5) -> Card:
    """A card that any store keeps."""
    marks: dict[str, Any] = {
        "weights": "a" * 64,
        "tokenizer": "b" * 64,
        "rope": "c" * 64,
        "source_sha256": sha256,
    }
    times: dict[str, Any] = {"created": "2026-01-02T03:04:05Z", "updated": "2026-01-02T03:04:05Z"}
    sizes: dict[str, Any] = {"tokens_read": 8, "cycles": 2, "fill": 8, "capacity": 128, "source_bytes": bytes}
    recipe = {"name": "infinipot"}
    return Card(
        model="toy", dtype="float32", recipe=recipe, title=title, infinipot="0", **marks, **times, **sizes
    )


def uploads_in(folder: Path) -> list[Path]:
    """What is left of uploads."""
    return [path for path in folder.rglob("*") if path.is_file()]
