"""Uploads into pots, pots as files; nothing is left behind, and no tenant sees another's."""

from __future__ import annotations

import asyncio
import hashlib
import json
import threading
import time
import tracemalloc
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import anyio
import pytest
from fastapi import FastAPI

from fake_scheduler import FakeScheduler, uploads_in
from infinipot.errors import StoreError
from infinipot.server.http import service, streams, uploads
from infinipot.server.http.limits import Places
from infinipot.server.scheduler.requests import FaultError, ReadIntoPot
from infinipot.server.settings import Settings
from waiting import comes_true, within_a_minute

from .conftest import KEY, OTHER_KEY, Client, calling, data_of, made


@pytest.fixture(autouse=True)
def _nothing_is_left(settings: Settings) -> Iterator[None]:
    yield
    assert uploads_in(settings.spool) == []
    assert list(settings.spool.iterdir()) == []


def make(client: Client, name: str = "book", content: Any = "Once upon a time", **more: Any) -> Any:
    return client("POST", f"/v1/pots/{name}", content=content, **more)


def test_a_text_becomes_a_pot(client: Client, scheduler: FakeScheduler) -> None:
    got = make(client, params={"title": "A book", "catalyst": "general-1"})
    assert got.status_code == 201
    pot = got.json()
    assert (pot["id"], pot["object"], pot["title"], pot["source_bytes"]) == ("book", "pot", "A book", 16)
    (request,) = scheduler.requests
    assert isinstance(request, ReadIntoPot)
    assert request.sha256 == hashlib.sha256(b"Once upon a time").hexdigest()
    assert (request.tenant, request.name, request.bytes, request.catalyst) == (
        "public",
        "book",
        16,
        "general-1",
    )
    assert client("GET", "/v1/pots").json()["data"] == [pot]
    assert client("GET", "/v1/pots/book").json() == pot
    assert client("DELETE", "/v1/pots/book").json() == {"id": "book", "object": "pot", "deleted": True}
    assert client("GET", "/v1/pots/book").status_code == 404


def test_words(client: Client) -> None:
    make(client)
    told = client("GET", "/v1/pots/book/words").json()
    assert told["words"] == [{"text": "Hello", "start": 0, "end": 5, "share": 0.5, "novelty": 1.25}]
    assert told["tokens_read"] == 8


def test_words_wait_in_few_places_and_keep_no_thread_from_others(
    client: Client, scheduler: FakeScheduler
) -> None:
    make(client)
    scheduler.finds = False

    async def work() -> tuple[list[int], Any, int, int]:
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
        found: list[int] = []
        async with calling(client.app) as caller:

            async def ask() -> None:
                found.append((await caller.get("/v1/pots/book/words")).status_code)

            async with anyio.create_task_group() as group:
                for _ in range(service.WORDS):
                    group.start_soon(ask)
                await comes_true(lambda: len(scheduler.looking) == service.WORDS)
                refused = await caller.get("/v1/pots/book/words")
                other = await caller.get("/v1/pots")
                for one in scheduler.looking:
                    one.set_result([])
            scheduler.finds = True
            again = await caller.get("/v1/pots/book/words")
        return found, refused, other.status_code, again.status_code

    found, refused, *others = anyio.run(within_a_minute, work)
    assert (refused.status_code, refused.headers["retry-after"]) == (429, "5")
    assert "too many lists of words at once" in refused.json()["error"]["message"]
    assert found == [200] * service.WORDS
    assert others == [200, 200]


def test_words_that_a_closing_server_does_not_look_for(client: Client, scheduler: FakeScheduler) -> None:
    make(client)
    scheduler.finds = False

    async def work() -> Any:
        async with calling(client.app) as caller, anyio.create_task_group() as group:

            async def close() -> None:
                await comes_true(lambda: bool(scheduler.looking))
                client.app.state.service.closing = True
                scheduler.looking[0].cancel()

            group.start_soon(close)
            waited = await caller.get("/v1/pots/book/words")
            return waited, await caller.get("/v1/pots/book/words")

    for got in anyio.run(within_a_minute, work):
        assert got.status_code == 503
        assert "the server is closing" in got.json()["error"]["message"]
    assert len(scheduler.looking) == 1


@pytest.mark.parametrize(
    "how", [{"params": {"stream": "true"}}, {"headers": {"Accept": "text/event-stream"}}]
)
def test_reading_is_followed_by_events(client: Client, how: dict[str, Any]) -> None:
    got = make(client, **how)
    assert got.status_code == 201
    names = [line.removeprefix("event: ") for line in got.text.splitlines() if line.startswith("event: ")]
    assert names == ["progress"] * 3 + ["done"]
    *steps, pot = [json.loads(data) for data in data_of(got.text)]
    assert steps[1] == {
        "tokens_read": 4,
        "cycles": 1,
        "fill": 4,
        "capacity": 128,
        "seconds": 0.5,
        "bytes_read": 8,
        "bytes_total": 16,
    }
    assert pot["id"] == "book"


def test_an_error_while_reading_is_an_event(client: Client, scheduler: FakeScheduler) -> None:
    scheduler.fail = FaultError("out of memory")
    got = make(client, params={"stream": "true"})
    assert "event: error" in got.text
    assert json.loads(data_of(got.text)[-1])["error"]["type"] == "server_error"
    assert make(client).status_code == 503


def test_append_and_replace(client: Client, scheduler: FakeScheduler) -> None:
    assert client("POST", "/v1/pots/book/append", content="more").status_code == 404
    make(client, params={"title": "First"})
    taken = make(client)
    assert (taken.status_code, taken.json()["error"]["code"]) == (409, "pot_exists")
    more = client("POST", "/v1/pots/book/append", content="more")
    assert (more.status_code, more.json()["title"]) == (201, "First")
    assert isinstance(scheduler.requests[-1], ReadIntoPot)
    assert scheduler.requests[-1].append
    assert make(client, params={"replace": "true"}).status_code == 201


@pytest.mark.parametrize(
    ("content", "headers", "status", "says"),
    [
        (b"", {}, 400, "no text"),
        (b" \n", {}, 400, "no text"),
        (b"abc\0def", {}, 400, "binary"),
        ("café".encode("latin1"), {}, 400, "not UTF-8"),
        ("no".encode("utf-16"), {}, 400, "UTF-16"),
        ("ö".encode()[:1], {}, 400, "not UTF-8"),
        (b"x=1", {"Content-Type": "application/x-www-form-urlencoded"}, 415, "text/plain"),
        (b"--x", {"Content-Type": "multipart/form-data; boundary=x"}, 415, "text/plain"),
        (b"abc", {"Content-Type": "text/plain; charset=latin-1"}, 415, "UTF-8"),
        (b"abc", {"Content-Encoding": "gzip"}, 415, "compressed"),
    ],
)
def test_what_is_no_text_is_refused(
    client: Client, content: bytes, headers: dict[str, str], status: int, says: str
) -> None:
    got = make(client, content=content, headers=headers)
    assert got.status_code == status
    assert says in got.json()["error"]["message"]
    assert client("GET", "/v1/pots").json()["data"] == []


@pytest.mark.parametrize(
    "name",
    ["%2e", ".hidden", "a..b", "a.", "%2e%2e", "a%00b", "%2fetc%2fpasswd", "a%5cb", "x" * 65, "ａ",
     "․․", "con", "a%20b", "-x", "%252e%252e", "tenants%2Fabc"],
)  # fmt: skip
@pytest.mark.parametrize(
    ("method", "rest"), [("POST", ""), ("GET", ""), ("DELETE", ""), ("GET", "/file"), ("PUT", "/file")]
)
def test_names_cannot_leave_the_store(client: Client, name: str, method: str, rest: str) -> None:
    got = client(method, f"/v1/pots/{name}{rest}", content=b"text" if method in ("POST", "PUT") else None)
    assert got.status_code in (400, 404, 405)
    assert "error" in got.json()


def test_a_pot_goes_out_and_comes_back(client: Client) -> None:
    pot = make(client).json()
    file = client("GET", "/v1/pots/book/file")
    assert file.headers["content-disposition"] == 'attachment; filename="book.pot"'
    assert len(file.content) == int(file.headers["content-length"])
    back = client("PUT", "/v1/pots/copy/file", content=file.content)
    assert back.status_code == 201
    assert {**back.json(), "id": "book"} == pot
    again = client("PUT", "/v1/pots/copy/file", content=file.content)
    assert again.status_code == 409
    assert client("PUT", "/v1/pots/copy/file?replace=true", content=file.content).status_code == 201


@pytest.mark.parametrize("damage", ["cut", "flip", "pickle", "empty"])
def test_what_is_no_pot_does_not_come_in(client: Client, settings: Settings, damage: str) -> None:
    make(client)
    whole = bytearray(client("GET", "/v1/pots/book/file").content)
    whole[-3] ^= 1
    bad = {"cut": bytes(whole[:-2]), "flip": bytes(whole), "pickle": b"\x80\x04cos\nsystem\n", "empty": b""}
    got = client("PUT", "/v1/pots/copy/file", content=bad[damage])
    assert (got.status_code, got.json()["error"]["code"]) == (400, "not_a_pot")
    assert str(settings.spool) not in got.text
    assert client("GET", "/v1/pots/copy").status_code == 404


def test_a_store_that_cannot_write_tells_nothing_of_its_place(
    client: Client, scheduler: FakeScheduler
) -> None:
    scheduler.fail = StoreError("cannot write /home/someone/pots/a.pot: no space; free some")
    scheduler.fail.__cause__ = OSError(28, "no space")
    got = make(client)
    assert got.status_code == 507
    assert got.json()["error"]["message"] == "cannot write the store no space; free some"


def test_a_full_disk_is_told(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: Any, data: bytes) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(uploads.Decoder, "push", full)
    got = make(client)
    assert (got.status_code, got.json()["error"]["code"]) == (507, "no_room")


def test_tenants_do_not_see_each_other(as_tenant: Callable[[str], Client], scheduler: FakeScheduler) -> None:
    first, second = as_tenant(KEY), as_tenant(OTHER_KEY)
    assert make(first).status_code == 201
    assert second("GET", "/v1/pots").json()["data"] == []
    for method, rest in [("GET", ""), ("DELETE", ""), ("GET", "/words"), ("GET", "/file")]:
        assert second(method, f"/v1/pots/book{rest}").status_code == 404
    assert second("POST", "/v1/pots/book/append", content="x").status_code == 404
    assert second.chat(pot="book").status_code == 404
    assert make(second, content="another").status_code == 201  # the same name, another pot
    assert first("GET", "/v1/pots/book").json()["source_bytes"] == 16
    assert len({request.tenant for request in scheduler.requests}) == 2


def test_a_question_about_a_pot(client: Client, scheduler: FakeScheduler) -> None:
    got = client.chat(pot="book")
    assert (got.status_code, got.json()["error"]["param"]) == (404, "pot")
    assert client.chat(pot="../book").status_code == 400
    make(client)
    assert client.chat(pot="book").status_code == 200
    assert scheduler.requests[-1].pot == "book"  # type: ignore[union-attr]


def test_an_upload_too_large_is_refused_as_it_comes(client: Client) -> None:
    taken = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal taken
        while True:
            taken += 1024
            yield b"x" * 1024

    limit = 2**20
    told = client.app.state.service
    small = Client(made(replace(told.settings, max_upload=limit), told.scheduler))
    got = make(small, content=endless())
    assert got.status_code == 413
    assert taken <= limit + 65_536
    assert make(small, content=b"x" * (limit + 1)).status_code == 413  # by what it says it will send


def test_only_so_many_uploads_at_once(client: Client) -> None:
    client.app.state.service.uploads = Places("uploads", 0, shared=False)
    got = make(client)
    assert (got.status_code, got.headers["retry-after"]) == (429, "5")
    client.app.state.service.uploads = Places("uploads", 4, shared=False)
    assert make(client).status_code == 201


class Taker:
    """A client of a download over ASGI, who takes nothing until told to, or for ever."""

    def __init__(self, app: FastAPI) -> None:
        self.app, self.begun, self.took = app, anyio.Event(), 0
        self.takes, self.leaves = anyio.Event(), anyio.Event()

    async def __call__(self) -> None:
        headers = [(b"host", b"localhost")]
        path = "/v1/pots/book/file"
        scope = {"type": "http", "method": "GET", "path": path, "raw_path": path.encode(), "headers": headers}
        scope |= {"query_string": b"", "http_version": "1.1", "scheme": "http", "root_path": ""}
        await self.app(scope | {"client": None, "server": ("localhost", 80)}, self._receive(), self._send)

    def _receive(self) -> Any:
        first = [{"type": "http.request", "body": b"", "more_body": False}]

        async def receive() -> Any:
            if first:
                return first.pop()
            await self.leaves.wait()
            return {"type": "http.disconnect"}

        return receive

    async def _send(self, message: Any) -> None:
        self.took += len(message.get("body", b""))
        self.begun.set()
        await self.takes.wait()


@pytest.mark.parametrize("end", ["taken", "left"])
def test_only_so_many_downloads_at_once(client: Client, end: str) -> None:
    make(client)
    size = len(client("GET", "/v1/pots/book/file").content)

    async def work() -> tuple[Any, Any, list[int]]:
        takers = [Taker(client.app) for _ in range(client.app.state.service.settings.max_downloads)]
        async with calling(client.app) as caller:
            async with anyio.create_task_group() as group:
                for taker in takers:
                    group.start_soon(taker)
                    await taker.begun.wait()
                refused = await caller.get("/v1/pots/book/file")
                for taker in takers:
                    (taker.takes if end == "taken" else taker.leaves).set()
            return refused, await caller.get("/v1/pots/book/file"), [taker.took for taker in takers]

    refused, after, took = anyio.run(within_a_minute, work)
    assert (refused.status_code, refused.headers["retry-after"]) == (429, "5")
    assert "too many downloads at once" in refused.json()["error"]["message"]
    assert len(after.content) == size
    assert set(took) == {size if end == "taken" else 0}


def test_a_download_that_is_not_taken_ends(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    make(client)
    monkeypatch.setattr(streams, "SEND_S", 0.05)
    client.app.state.service.downloads = Places("downloads", 1, shared=False)

    async def work() -> Any:
        await Taker(client.app)()
        async with calling(client.app) as caller:
            return await caller.get("/v1/pots/book/file")

    assert anyio.run(within_a_minute, work).status_code == 200


def test_a_client_that_stops_sending_is_let_go(settings: Settings, scheduler: FakeScheduler) -> None:
    app = made(replace(settings, idle_s=0.1), scheduler)

    async def slow() -> AsyncIterator[bytes]:
        yield b"Once"
        await anyio.sleep(2)
        yield b" upon"

    for path in ("/v1/pots/book", "/v1/chat/completions"):

        async def call(path: str = path) -> Any:
            async with calling(app) as caller:
                return await caller.post(path, content=slow(), headers={"Content-Type": "text/plain"})

        got = anyio.run(call)
        assert got.status_code == 408
        assert got.headers["connection"] == "close"


def test_an_upload_uses_no_memory(client: Client) -> None:
    """200 MB pass through; what Python holds at most is a few blocks."""
    line = b"The sea was calm and nobody spoke. " * 1000

    async def text() -> AsyncIterator[bytes]:
        for _ in range(200_000_000 // len(line)):
            yield line

    tracemalloc.start()
    try:
        got = make(client, content=text())
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert got.status_code == 201
    assert got.json()["source_bytes"] == 200_000_000 // len(line) * len(line)
    assert peak < 8_000_000


def test_a_pot_being_written_is_refused_at_once(client: Client, scheduler: FakeScheduler) -> None:
    make(client)
    file = client("GET", "/v1/pots/book/file").content
    held, done = threading.Event(), threading.Event()

    def write() -> None:
        with scheduler.store.lock("book"):
            held.set()
            done.wait(20)

    writer = threading.Thread(target=write)
    writer.start()
    held.wait(20)
    started = time.monotonic()
    try:
        for answer in (
            client("DELETE", "/v1/pots/book"),
            client("PUT", "/v1/pots/book/file", content=file, params={"replace": "true"}),
        ):
            assert answer.status_code == 409
            assert "being written" in answer.json()["error"]["message"]
    finally:
        done.set()
        writer.join(20)
    assert time.monotonic() - started < 5
    assert client("DELETE", "/v1/pots/book").status_code == 200
