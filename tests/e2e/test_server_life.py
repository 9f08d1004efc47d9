"""A server's life: busy, left by its clients, asked to end, asked twice."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

import toy_server
from fake_scheduler import uploads_in
from toy_server import Running, running
from waiting import eventually

CHAT = "/v1/chat/completions"
LONG = "The sea was calm and nobody spoke. " * 400


def asked(text: str = "Hello", tokens: int = 60, **more: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text}], "max_tokens": tokens, "keep": False, **more}


def port(server: Running) -> int:
    return int(server.url.rpartition(":")[2])


def test_sigterm_finishes_what_was_accepted_and_takes_no_more(tmp_path: Path) -> None:
    with running(tmp_path, pause=0.05, drain_s=60) as server, ThreadPoolExecutor(4) as pool:

        def posted(tokens: int, **more: Any) -> Future[httpx.Response]:
            return pool.submit(httpx.post, server.url + CHAT, json=asked(tokens=tokens, **more), timeout=120)

        whole, streamed = posted(400), posted(400, stream=True)
        eventually(lambda: server.state()["slots_busy"] == 2)
        queued = posted(5)
        eventually(lambda: server.state()["queued"] == 1)
        server.process.send_signal(signal.SIGTERM)
        eventually(lambda: server.get("/ready")[0] == 503)
        refused = httpx.post(server.url + CHAT, json=asked(), timeout=60)
        assert refused.status_code == 503
        assert refused.headers["retry-after"]
        assert httpx.post(f"{server.url}/v1/pots/a", content="text", timeout=60).status_code == 503
        assert server.get("/health")[0] == 200
        assert whole.result().json()["choices"][0]["finish_reason"]
        assert streamed.result().text.rstrip().endswith("data: [DONE]")
        assert queued.result().json()["usage"]["completion_tokens"] == 5
        assert server.process.wait(20) == 0


@pytest.mark.slow
def test_what_outlasts_the_drain_is_told_so(tmp_path: Path) -> None:
    with running(tmp_path, pause=0.05, drain_s=0.5) as server, ThreadPoolExecutor(2) as pool:
        whole = pool.submit(httpx.post, server.url + CHAT, json=asked(tokens=2000), timeout=60)
        streamed = pool.submit(
            httpx.post, server.url + CHAT, json=asked(tokens=2000, stream=True), timeout=60
        )
        eventually(lambda: server.state()["slots_busy"] == 2)
        server.process.send_signal(signal.SIGTERM)
        assert whole.result().status_code == 503
        last = streamed.result().text.strip().splitlines()[-1]
        assert "closing" in json.loads(last.removeprefix("data: "))["error"]["message"]
        assert server.process.wait(20) == 0


def test_sigterm_while_it_warms_up_ends_it(tmp_path: Path) -> None:
    told = {"store": str(tmp_path / "pots"), "spool": str(tmp_path), "pause": 0.2, "capacity": 2048}
    with subprocess.Popen(
        [sys.executable, toy_server.__file__, json.dumps(told)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as process:
        assert process.stdout is not None
        url = f"http://127.0.0.1:{process.stdout.readline().decode().strip()}"
        eventually(lambda: _answers(url))
        assert httpx.get(f"{url}/ready").status_code == 503
        process.send_signal(signal.SIGTERM)
        try:
            assert process.wait(20) == 0
        finally:
            process.kill()


def _answers(url: str) -> bool:
    try:
        return httpx.get(f"{url}/health").status_code == 200
    except httpx.TransportError:
        return False


def test_a_second_signal_ends_at_once(tmp_path: Path) -> None:
    with running(tmp_path, pause=0.05, drain_s=60) as server, ThreadPoolExecutor(1) as pool:
        call = pool.submit(httpx.post, server.url + CHAT, json=asked(tokens=2000), timeout=60)
        eventually(lambda: server.state()["slots_busy"] == 1)
        server.process.send_signal(signal.SIGINT)
        eventually(lambda: server.get("/ready")[0] == 503)
        server.process.send_signal(signal.SIGINT)
        server.process.wait(20)
        with pytest.raises(httpx.HTTPError):
            call.result().raise_for_status()


@contextmanager
def posted(server: Running, path: str, body: bytes, more: int = 0) -> Iterator[socket.socket]:
    """A connection over which a body was posted, but for some bytes; its client leaves at the end."""
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {{}}\r\nContent-Length: {{}}\r\n\r\n"
    kind = "application/json" if path == CHAT else "text/plain"
    with socket.create_connection(("127.0.0.1", port(server)), timeout=60) as raw:
        raw.sendall(head.format(kind, len(body) + more).encode() + body)
        yield raw


def chunks(lines: Iterable[str]) -> Iterator[dict[str, Any]]:
    return (json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: {"))


def speaks(chunk: dict[str, Any]) -> bool:
    return bool(chunk["choices"][0]["delta"].get("content"))


def reads(chunk: dict[str, Any]) -> bool:
    told = chunk.get("prompt_progress")
    return told is not None and 0 < told["processed"] < told["total"]


@pytest.mark.parametrize(("text", "works"), [("Hello", speaks), (LONG, reads)])
def test_a_client_that_leaves_frees_its_slot(
    tmp_path: Path, text: str, works: Callable[[dict[str, Any]], bool]
) -> None:
    """While it speaks, and while it reads; to its end the answer would take longer than is waited for."""
    with running(tmp_path, pause=0.05) as server:
        with posted(server, CHAT, json.dumps(asked(text, 5000)).encode()):
            eventually(lambda: server.state()["slots_busy"] == 1)
        eventually(lambda: server.state()["slots_busy"] == 0)
        body = asked(text, 5000, stream=True, return_progress=True)
        with httpx.stream("POST", server.url + CHAT, json=body, timeout=60) as got:
            lines = got.iter_lines()  # held: httpx hangs up when an iterator is dropped before its end
            assert any(works(chunk) for chunk in chunks(lines))
            assert server.state()["slots_busy"] == 1
        eventually(lambda: server.state()["slots_busy"] == 0)


def test_a_client_that_leaves_an_upload_leaves_nothing(tmp_path: Path) -> None:
    spool = tmp_path / "spool"
    with running(tmp_path, pause=0.05) as server:
        with posted(server, "/v1/pots/sea", LONG.encode()):
            eventually(lambda: server.state()["slots_busy"] == 1)
        eventually(lambda: server.state()["slots_busy"] == 0)
        with posted(server, "/v1/pots/sea", b"half a te", more=999_999):  # or in the middle of sending
            eventually(lambda: bool(list(spool.glob("*/upload"))))
        eventually(lambda: uploads_in(spool) == [] and not list(spool.iterdir()))
        assert json.loads(server.get("/v1/pots")[1])["data"] == []


def test_a_full_queue_answers_429_and_then_serves_again(tmp_path: Path) -> None:
    with running(tmp_path, pause=0.02, slots=1, queue=2) as server, ThreadPoolExecutor(7) as pool:

        def several(count: int) -> list[Future[httpx.Response]]:
            told = {"json": asked(tokens=30), "timeout": 120}
            return [pool.submit(httpx.post, server.url + CHAT, **told) for _ in range(count)]

        body = asked(tokens=10_000, stream=True)  # which takes minutes, and is left
        with httpx.stream("POST", server.url + CHAT, json=body, timeout=60) as first:
            assert first.status_code == 200
            eventually(lambda: server.state()["slots_busy"] == 1)
            waiting = several(2)
            eventually(lambda: server.state()["queued"] == 2)
            busy = [call.result() for call in several(5)]
            assert [answer.status_code for answer in busy] == [429] * 5
            assert server.state()["queued"] == 2
        assert all(int(answer.headers["retry-after"]) >= 1 for answer in busy)
        assert busy[0].json()["error"]["type"] == "rate_limit_error"
        assert [call.result().status_code for call in waiting] == [200, 200]
        assert httpx.post(server.url + CHAT, json=asked(tokens=2), timeout=60).status_code == 200
        assert server.state()["slots_busy"] == 0


def test_slow_clients_are_let_go(tmp_path: Path) -> None:
    with running(tmp_path, idle_s=0.5, headers_s=0.5) as server:
        address = ("127.0.0.1", port(server))
        with socket.create_connection(address, timeout=20) as silent:
            assert silent.recv(100) == b""
        with socket.create_connection(address, timeout=20) as half:
            half.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n")
            assert half.recv(100) == b""
        with socket.create_connection(address, timeout=20) as body:
            body.sendall(
                b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99\r\n\r\n{"
            )
            answer = b""
            while part := body.recv(1000):
                answer += part
            assert answer.startswith(b"HTTP/1.1 408")
        with socket.create_connection(address, timeout=20) as kept:  # one that is at work is not
            kept.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert kept.recv(1000).startswith(b"HTTP/1.1 200")


@pytest.mark.slow
def test_an_upload_of_200_megabytes_needs_no_memory(tmp_path: Path) -> None:
    """Sent to the real server, whose disk is filled and whose memory is not; refused at its last byte."""
    block = ("All work and no play. " * 3000).encode()
    count = 200_000_000 // len(block)
    with running(tmp_path) as server:
        sent = threading.Event()
        peak = [0]

        def body() -> Any:
            for _ in range(count):
                yield block
            sent.set()
            yield b"\xff"

        def watch() -> None:
            while not sent.is_set():
                peak[0] = max(peak[0], server.state()["memory_bytes"])
                time.sleep(0.05)

        before = server.state()["memory_bytes"]
        watcher = threading.Thread(target=watch)
        watcher.start()
        got = httpx.post(f"{server.url}/v1/pots/big", content=body(), timeout=120)
        watcher.join()
        assert (got.status_code, f"byte {count * len(block)}" in got.text) == (400, True)
        assert peak[0] - before < 30_000_000
        assert list((tmp_path / "spool").iterdir()) == []


def test_a_port_that_is_taken_is_one_line(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        words = ["serve", "--port", str(taken.getsockname()[1]), "--model", str(tmp_path)]
        done = subprocess.run(
            [sys.executable, "-m", "infinipot.cli.main", *words], capture_output=True, timeout=120
        )
    assert done.returncode == 2
    assert b"cannot listen on 127.0.0.1" in done.stderr
    assert b"Traceback" not in done.stderr
