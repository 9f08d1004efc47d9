"""`infinipot mcp` as agents meet it: the SDK's own client, in memory, over standard streams and over HTTP."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest
from mcp import Client, StdioServerParameters
from mcp.types import CallToolResult

import small_documents as made
from infinipot.errors import ModelError
from infinipot.mcp import server as serving
from infinipot.mcp.pots import Pots, Reach
from infinipot.mcp.server import build
from infinipot.mcp.tools import TOOLS
from infinipot.store import open_store

from .conftest import RECIPE, toy_engine

Talk = Callable[[Client], Awaitable[None]]
LOG = "\n\n".join(f"Day {day}. " + "Rain fell on the old harbour. " * 12 for day in range(9))
FACT = "Ottilie kept a raven in the attic. Nobody minded much."


def talk(pots: Pots, said: Talk) -> None:
    async def main() -> None:
        async with Client(build(pots)) as client:
            await said(client)

    anyio.run(main)


def text_of(result: CallToolResult) -> str:
    (content,) = result.content
    return content.text  # type: ignore[union-attr]


def structured(result: CallToolResult) -> dict[str, Any]:
    assert not result.is_error, text_of(result)
    assert result.structured_content == json.loads(text_of(result))
    assert result.structured_content is not None
    return result.structured_content


def test_a_document_is_read_asked_and_recalled(pots: Pots, tmp_path: Path) -> None:
    pages = [LOG[at : at + 90].replace("\n", " ") for at in range(0, 1800, 90)]
    document = made.pdf([[line] * 5 for line in pages] + [[FACT]])
    (tmp_path / "texts" / "log.pdf").write_bytes(document)
    heard: list[tuple[float, float | None, str | None]] = []

    async def progress(done: float, total: float | None, message: str | None) -> None:
        heard.append((done, total, message))

    async def said(client: Client) -> None:
        listed = await client.list_tools()
        assert [tool.name for tool in listed.tools] == list(TOOLS)
        told = structured(
            await client.call_tool(
                "read_document", {"pot": "log", "path": "log.pdf"}, progress_callback=progress
            )
        )
        assert (told["pot"], told["title"], told["notes"]) == ("log", "log.pdf", [])
        assert told["tokens_read"] == told["tokens_added"] > 1024
        assert structured(await client.call_tool("list_pots"))["pots"][0]["pot"] == "log"
        asked = {"pot": "log", "question": "Which animal did Ottilie keep?"}
        for _ in range(2):  # from the disk, then from memory
            answer = structured(await client.call_tool("ask", {**asked, "max_new_tokens": 4}))
            places = [one["place"] for one in answer["passages"] if "raven" in one["text"]]
            assert [place.split(", char")[0] for place in places] == ["log.pdf, page 21"]
            assert answer["answer"]
        found = structured(await client.call_tool("recall", {**asked, "tokens": 80}))["passages"]
        assert [one["text"].strip() for one in found] == [FACT]

    talk(pots, said)
    assert heard[-1][0] == heard[-1][1]
    assert [done for done, _, _ in heard] == sorted(done for done, _, _ in heard)
    assert " tokens, " in (heard[-1][2] or "")


def test_a_text_is_appended_and_replaced(pots: Pots) -> None:
    async def said(client: Client) -> None:
        first = structured(await client.call_tool("read_document", {"pot": "a", "text": LOG, "title": "Log"}))
        more = {"pot": "a", "text": FACT, "title": "Later", "append": True}
        second = structured(await client.call_tool("read_document", more))
        assert second["title"] == "Log"
        assert second["tokens_read"] == first["tokens_read"] + second["tokens_added"]
        asked = {"pot": "a", "question": "Which raven?"}
        (found,) = structured(await client.call_tool("recall", asked))["passages"]
        assert found["place"].startswith("Later, characters ")
        again = {"pot": "a", "text": "Half a \ud83d character, héllo.", "replace": True}
        third = structured(await client.call_tool("read_document", again))
        assert third["tokens_read"] < 40
        (short,) = structured(await client.call_tool("recall", {"pot": "a", "question": "héllo"}))["passages"]
        assert short["text"].endswith("character, héllo.")

    talk(pots, said)


@pytest.mark.parametrize(
    ("tool", "given", "says"),
    [
        ("read_document", {"pot": "a"}, "a document is a `path` or a `text`: give one of them"),
        ("read_document", {"pot": "a", "path": "x", "text": "y"}, "a document is a `path` or a `text`"),
        ("read_document", {"pot": "a", "text": " \n"}, "the text is empty: give some words"),
        ("read_document", {"pot": "../a", "text": "x"}, "is no name for a pot: use up to 64"),
        (
            "read_document",
            {"pot": "a", "path": "/etc/passwd"},
            "/etc/passwd is not in a folder that may be read",
        ),
        ("read_document", {"pot": "a", "path": "../pots"}, "../pots is not in a folder that may be read"),
        ("read_document", {"pot": "a", "path": "~/x"}, "~/x is not in a folder that may be read"),
        ("read_document", {"pot": "a", "path": "link"}, "link is not in a folder that may be read"),
        ("read_document", {"pot": "a", "path": "nowhere"}, "there is no such file"),
        ("read_document", {"pot": "a", "path": "~no-such-user/x"}, "~no-such-user/x is no name of a file"),
        ("read_document", {"pot": "a", "path": "a\0b"}, "a b is no name of a file: give a path"),
        ("read_document", {"pot": "a", "path": "loop/x"}, "loop/x"),
        ("read_document", {"pot": "a", "path": "*.nothing"}, "no file is called like"),
        (
            "read_document",
            {"pot": "a", "path": "http://127.0.0.1/"},
            "addresses of the web are not read here",
        ),
        ("read_document", {"pot": "known", "text": "x"}, "there is a pot 'known' already: append to it"),
        ("read_document", {"pot": "a", "text": "x", "append": True}, "there is no pot 'a' in "),
        (
            "read_document",
            {"pot": "a", "txt": "x"},
            "Additional properties are not allowed ('txt' was unexpected)",
        ),
        ("read_document", {}, "'pot' is a required property: see the tool's schema"),
        ("ask", {"pot": "knwon", "question": "Who?"}, "did you mean 'known'"),
        ("ask", {"pot": "known", "question": " "}, "the question is empty"),
        ("ask", {"pot": "known", "question": "w " * 2000}, "tokens is too long for a pot of 1024"),
        ("ask", {"pot": "known", "question": "Who?", "max_new_tokens": 0}, "0 is less than the minimum of 1"),
        ("ask", {"pot": "known", "question": 7}, "question: 7 is not of type 'string'"),
        (
            "recall",
            {"pot": "bare", "question": "Who?"},
            "pot 'bare' was read without an archive: read its text",
        ),
        ("forget", {}, "there is no tool 'forget': use one of read_document, ask, recall, list_pots"),
    ],
)
def test_an_error_is_one_clear_line(
    pots: Pots, tmp_path: Path, tool: str, given: dict[str, Any], says: str
) -> None:
    (tmp_path / "texts" / "link").symlink_to("/etc/passwd")
    (tmp_path / "texts" / "loop").symlink_to("loop")
    pots.read({"pot": "known", "text": "Known words."})
    if given.get("pot") == "bare":
        store = open_store(str(tmp_path / "pots"))
        state, card = store.load("known")
        store.save("bare", state, card)

    async def said(client: Client) -> None:
        result = await client.call_tool(tool, given)
        assert result.is_error
        assert "\n" not in text_of(result)
        assert says in text_of(result)

    talk(pots, said)


def test_a_model_that_cannot_be_loaded_is_told_and_pots_are_listed_all_the_same(tmp_path: Path) -> None:
    def missing() -> Any:
        raise ModelError("there is no model 'smolm2'", remedy="did you mean 'smollm2'?")

    pots = Pots(missing, open_store(str(tmp_path)), Reach([tmp_path]))

    async def said(client: Client) -> None:
        assert structured(await client.call_tool("list_pots")) == {"pots": []}
        result = await client.call_tool("read_document", {"pot": "a", "text": "x"})
        assert text_of(result) == "there is no model 'smolm2': did you mean 'smollm2'?"

    talk(pots, said)


def test_memory_that_runs_out_is_told(pots: Pots, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise RuntimeError("CUDA out of memory")

    monkeypatch.setattr(pots, "ask", full)

    async def said(client: Client) -> None:
        result = await client.call_tool("ask", {"pot": "a", "question": "Who?"})
        assert text_of(result).startswith("out of memory")

    talk(pots, said)


def test_a_caller_who_leaves_ends_the_reading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine, reading = toy_engine(), threading.Event()
    forward = engine.model.forward

    def slowly(*given: Any) -> Any:
        reading.set()
        time.sleep(0.05)
        return forward(*given)

    monkeypatch.setattr(engine.model, "forward", slowly)
    pots = Pots(lambda: (engine, RECIPE), open_store(str(tmp_path)), Reach([tmp_path]))

    async def said(client: Client) -> None:
        with anyio.move_on_after(30) as scope:
            async with anyio.create_task_group() as group:
                group.start_soon(client.call_tool, "read_document", {"pot": "a", "text": LOG * 200})
                await anyio.to_thread.run_sync(reading.wait)
                group.cancel_scope.cancel()
        assert not scope.cancelled_caught
        started = time.monotonic()
        monkeypatch.setattr(engine.model, "forward", forward)
        structured(await client.call_tool("read_document", {"pot": "b", "text": "short"}))
        assert time.monotonic() - started < 10  # the first reading would take minutes
        assert [one["pot"] for one in structured(await client.call_tool("list_pots"))["pots"]] == ["b"]

    talk(pots, said)


# Processes -----------------------------------------------------------------------


@pytest.fixture
def command(model: str, tmp_path: Path) -> list[str]:
    (tmp_path / "notes.md").write_text(f"# Rain\n{LOG}\n\n# Attic\n{FACT}\n")
    words = ["--model", model, "--capacity", "512", "--store", str(tmp_path / "pots")]
    return ["-m", "infinipot", "mcp", "--folder", str(tmp_path), *words]


async def used(client: Client) -> None:
    """What an agent does first."""
    heard: list[float] = []

    async def progress(done: float, *_: object) -> None:
        heard.append(done)

    given = {"pot": "notes", "path": "notes.md"}
    told = structured(await client.call_tool("read_document", given, progress_callback=progress))
    assert told["title"] == "notes.md"
    assert heard
    asked = {"pot": "notes", "question": "Which raven?"}
    answer = structured(await client.call_tool("ask", {**asked, "max_new_tokens": 4}))
    assert "notes.md, Attic" in [one["place"].split(", char")[0] for one in answer["passages"]]
    found = structured(await client.call_tool("recall", asked))["passages"]
    assert any("raven" in one["text"] for one in found)
    assert [one["pot"] for one in structured(await client.call_tool("list_pots"))["pots"]] == ["notes"]
    refused = await client.call_tool("ask", {"pot": "nothing", "question": "Who?"})
    assert refused.is_error
    assert text_of(refused).startswith("there is no pot 'nothing'")


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_an_agent_over_standard_streams(command: list[str], mode: str) -> None:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    server = StdioServerParameters(command=sys.executable, args=command, env=environment)

    async def main() -> None:
        async with Client(server, mode=mode) as client:
            await used(client)

    anyio.run(main)


def test_agents_over_http_on_this_machine_alone(command: list[str]) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    server = subprocess.Popen(
        [sys.executable, *command, "--http", "--port", str(port)],
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    here = f"http://127.0.0.1:{port}"
    try:
        until = time.monotonic() + 120
        while True:
            assert server.poll() is None, server.stderr and server.stderr.read()
            assert time.monotonic() < until
            try:
                if httpx.get(f"{here}/ready", timeout=5).status_code == 200:
                    break
            except httpx.TransportError:
                pass
            time.sleep(0.2)

        async def main() -> None:
            async with Client(f"{here}{serving.PATH}") as client:
                await used(client)

        anyio.run(main)
        hello = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
        kinds = {"Accept": "application/json, text/event-stream"}
        for headers in ({"Host": "evil.example"}, {"Origin": "https://evil.example"}):
            got = httpx.post(f"{here}{serving.PATH}", json=hello, headers={**kinds, **headers})
            assert got.status_code in (403, 421), got.text
    finally:
        server.terminate()
        out, _ = server.communicate(timeout=30)
    assert out == b""


def test_what_mcp_cannot_be_started_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from commands import run

    done = run("mcp", "--folder", str(tmp_path / "nowhere"))
    assert done.returncode == 2
    assert b"there is no folder" in done.stderr
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        done = run("mcp", "--http", "--port", port)
        assert done.returncode == 2
        assert f"port {port} of 127.0.0.1 cannot be had (address already in use): use another --port" in (
            done.stderr.decode()
        )
    monkeypatch.setitem(sys.modules, "mcp", None)
    done = run("mcp")
    assert done.returncode == 2
    assert b"needs more packages: run pip install '.[mcp]'" in done.stderr
