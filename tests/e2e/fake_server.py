"""A server without a model: the page's folder and the routes of the real one, played with made-up answers.

It reads nothing and keeps only what the page shows. Its fills, cycles and words follow the paper's rules, and
its timing can be set, so that a test can look at a reading while it goes on.
"""

from __future__ import annotations

import asyncio
import json
import re
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import FastAPI, Request, Response
from fastapi.responses import FileResponse, JSONResponse, StreamingResponse

PAGE = Path(__file__).parents[2] / "src" / "infinipot" / "server" / "page"
CSP = "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
TOKEN = 4  # bytes
ANSWER = "The captain of the ship is Ahab, <b>who</b> lost a leg to the whale and will not rest."


@dataclass
class FakeServer:
    """What the fake knows."""

    capacity: int = 2048
    step: int = 768  # tokens between two progress events
    pause: float = 0.02  # seconds between them, and between pieces of an answer
    pots: dict[str, dict[str, Any]] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)
    asked: list[dict[str, Any]] = field(default_factory=list)
    passages: list[dict[str, Any]] = field(default_factory=list)  # that an answer about a pot recalls
    places: list[dict[str, Any]] = field(default_factory=list)  # in the queue, told before anything else
    busy: int = 0
    cancelled: int = 0

    def state(self) -> dict[str, Any]:
        slots = [{"busy": index < self.busy} for index in range(2)]
        return {
            "model": "smollm2",
            "capacity": self.capacity,
            "slots": slots,
            "slots_busy": self.busy,
            "queued": 0,
            "pots_bytes": 241_000_000,
            "memory_bytes": 1_260_000_000,
            "memory_bound_bytes": 2_100_000_000,
            "conversations": 0,
            "recipe": {"method": "infinipot"},
        }

    def keep(self, name: str, title: str, text: str) -> dict[str, Any]:
        tokens, fill, cycles = self.reached(len(text.encode()))
        now, before = int(time.time()), self.pots.get(name, {})
        self.texts[name] = text
        self.pots[name] = {
            "id": name,
            "object": "pot",
            "title": title,
            "model": "smollm2",
            "created": before.get("created", now),
            "updated": now,
            "tokens_read": tokens,
            "cycles": cycles,
            "fill": fill,
            "capacity": self.capacity,
            "bytes": fill * 57_600,
            "source_bytes": len(text.encode()),
            "recipe": {"method": "infinipot"},
        }
        return self.pots[name]

    def reached(self, size: int) -> tuple[int, int, int]:
        """Tokens read, fill and cycles after that many bytes: each cycle halves a full pot."""
        tokens, half = -(-size // TOKEN), self.capacity // 2
        cycles = max(0, (tokens - 1) // half - 1)
        return tokens, tokens - cycles * half, cycles

    def words(self, name: str) -> list[dict[str, Any]]:
        """Some of the words, more of them towards the end, as a pot has them."""
        kept, start = [], 0
        found = list(re.finditer(r"\S+\s*", self.texts[name]))
        for index, match in enumerate(found):
            length = max(1, len(match[0]) // TOKEN)
            weight = sum(map(ord, match[0].strip())) % 97 / 97
            if len(found) < 200 or index % 23 < 8 or weight > 0.85:
                word = {"text": match[0], "start": start, "end": start + length}
                kept.append({**word, "share": 0.03 + 0.97 * weight**2, "novelty": 9 * weight})
            start += length
        return kept


def refuse(status: int, message: str, kind: str = "invalid_request_error") -> JSONResponse:
    error = {"message": message, "type": kind, "param": None, "code": None}
    return JSONResponse({"error": error}, status)


def event(data: object, name: str | None = None) -> str:
    head = f"event: {name}\r\n" if name else ""
    return f"{head}data: {data if isinstance(data, str) else json.dumps(data)}\r\n\r\n"


def create_app(fake: FakeServer) -> FastAPI:
    app = FastAPI(docs_url=None, redoc_url=None)

    @app.middleware("http")
    async def strict(request: Request, proceed: Any) -> Response:
        response: Response = await proceed(request)
        response.headers["Content-Security-Policy"] = CSP
        response.headers["X-Content-Type-Options"] = "nosniff"
        return response

    @app.get("/")
    async def index() -> Response:
        return FileResponse(PAGE / "index.html")

    @app.get("/page/{name}")
    async def asset(name: str) -> Response:
        known = {path.name: path for path in PAGE.iterdir()}
        return FileResponse(known[name]) if name in known else refuse(404, "no such file")

    @app.get("/v1/state")
    async def state() -> dict[str, Any]:
        return fake.state()

    add_pots(app, fake)
    add_chat(app, fake)
    return app


def add_pots(app: FastAPI, fake: FakeServer) -> None:
    @app.get("/v1/pots")
    async def pots() -> dict[str, Any]:
        return {"object": "list", "data": list(fake.pots.values())}

    @app.post("/v1/pots/{name}")
    async def create(name: str, request: Request, title: str = "") -> Response:
        if name in fake.pots:
            return refuse(409, f"there is a pot named {name}: choose another name, or replace=true")
        return await read(name, title or name, "", request)

    @app.post("/v1/pots/{name}/append")
    async def append(name: str, request: Request) -> Response:
        return await read(name, fake.pots[name]["title"], fake.texts[name], request)

    async def read(name: str, title: str, before: str, request: Request) -> Response:
        try:
            text = (await request.body()).decode("utf-8")
        except UnicodeDecodeError:
            return refuse(400, "the text is not UTF-8: convert it first")
        return StreamingResponse(reading(name, title, before, text), media_type="text/event-stream")

    async def reading(name: str, title: str, before: str, text: str) -> AsyncIterator[str]:
        fake.busy += 1
        known, size, began = len(before.encode()), len(text.encode()), time.perf_counter()
        try:
            for place in fake.places:
                yield event(place, "queued")
                await asyncio.sleep(fake.pause)
            for done in [*range(fake.step * TOKEN, size, fake.step * TOKEN), size]:
                await asyncio.sleep(fake.pause)
                tokens, fill, cycles = fake.reached(known + done)
                told = {"tokens_read": tokens, "cycles": cycles, "fill": fill, "capacity": fake.capacity}
                seconds = time.perf_counter() - began
                yield event({**told, "seconds": seconds, "bytes_read": done, "bytes_total": size}, "progress")
            yield event(fake.keep(name, title, before + text), "done")
        except asyncio.CancelledError:
            fake.cancelled += 1
            raise
        finally:
            fake.busy -= 1

    @app.delete("/v1/pots/{name}")
    async def remove(name: str) -> dict[str, Any]:
        del fake.pots[name]
        return {"id": name, "object": "pot", "deleted": True}

    @app.get("/v1/pots/{name}/words")
    async def words(name: str) -> dict[str, Any]:
        pot = fake.pots[name]
        return {"words": fake.words(name), "tokens_read": pot["tokens_read"], "held": pot["fill"]}

    @app.get("/v1/pots/{name}/file")
    async def export(name: str) -> Response:
        content = json.dumps([fake.pots[name]["title"], fake.texts[name]])
        return Response(content, media_type="application/octet-stream")

    @app.put("/v1/pots/{name}/file")
    async def bring(name: str, request: Request) -> Response:
        try:
            title, text = json.loads(await request.body())
        except ValueError:
            return refuse(400, "this file is not a pot: export one with infinipot pots export")
        return JSONResponse(fake.keep(name, title, text), 201)


def add_chat(app: FastAPI, fake: FakeServer) -> None:
    @app.post("/v1/chat/completions")
    async def chat(request: Request) -> Response:
        body = await request.json()
        fake.asked.append(body)
        return StreamingResponse(answering(body), media_type="text/event-stream")

    async def answering(body: dict[str, Any]) -> AsyncIterator[str]:
        sizes = [len(message["content"]) // TOKEN + 8 for message in body["messages"]]
        total, cache = sum(sizes), sum(sizes[:-1])
        for place in fake.places:
            yield event({"choices": [{"index": 0, "delta": {}, "finish_reason": None}], "queue": place})
            await asyncio.sleep(fake.pause)
        for done in [*range(cache, total, fake.step), total]:
            await asyncio.sleep(fake.pause)
            told = {"total": total, "cache": cache, "processed": done, "time_ms": 1}
            pot = {"fill": 1100, "capacity": fake.capacity, "cycles": 3}
            silent = {"index": 0, "delta": {}, "finish_reason": None}
            yield event({"choices": [silent], "prompt_progress": told, "pot": pot})
        for piece in re.findall(r"\S+\s*", ANSWER):
            await asyncio.sleep(fake.pause)
            yield event({"choices": [{"index": 0, "delta": {"content": piece}, "finish_reason": None}]})
        recalled = {"passages": fake.passages} if fake.passages and body.get("pot") else {}
        yield event({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}], **recalled})
        usage = {"prompt_tokens": total, "completion_tokens": 18, "total_tokens": total + 18}
        yield event({"choices": [], "usage": {**usage, "prompt_tokens_details": {"cached_tokens": cache}}})
        yield event("[DONE]")


@contextmanager
def serving(fake: FakeServer) -> Iterator[str]:
    """Serve on a free port of this machine; give the address."""
    config = uvicorn.Config(create_app(fake), host="127.0.0.1", port=0, log_level="error", ws="none")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(10)
