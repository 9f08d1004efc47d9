"""A server's life: busy, left by its clients, asked to end, asked twice."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

import toy_server
from fake_scheduler import uploads_in
from toy_server import Running, running

CHAT = "/v1/chat/completions"
LONG = "The sea was calm and nobody spoke. " * 400


def asked(text: str = "Hello", tokens: int = 60, **more: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text}], "max_tokens": tokens, "keep": False, **more}


def eventually(true: Callable[[], bool], seconds: float = 20) -> float:
    """Wait for something; return how long it took."""
    started = time.monotonic()
    while not true():
        assert time.monotonic() - started < seconds, "it never happened"
        time.sleep(0.02)
    return time.monotonic() - started


def port(server: Running) -> int:
    return int(server.url.rpartition(":")[2])


def test_sigterm_finishes_what_was_accepted_and_takes_no_more(tmp_path: Path) -> None:
    with running(tmp_path, pause=0.05, drain_s=60) as server, ThreadPoolExecutor(4) as pool:
        whole: Future[httpx.Response] = pool.submit(httpx.post, server.url + CHAT, json=asked(), timeout=60)
        streamed: Future[httpx.Response] = pool.submit(
            httpx.post, server.url + CHAT, json=asked(stream=True), timeout=60
        )
        queued: Future[httpx.Response] = pool.submit(
            httpx.post, server.url + CHAT, json=asked(tokens=5), timeout=60
        )
        eventually(lambda: server.state()["slots_busy"] == 2 and server.state()["queued"] == 1)
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


def test_a_client_that_leaves_frees_its_slot(tmp_path: Path) -> None:
    with running(tmp_path, pause=0.05) as server:
        for text in ("Hello", LONG):  # while it speaks, and while it reads
            with pytest.raises(httpx.TimeoutException):
                httpx.post(server.url + CHAT, json=asked(text, 2000), timeout=0.5)
            assert eventually(lambda: server.state()["slots_busy"] == 0) < 2
            body = asked(text, 2000, stream=True, return_progress=True)
            with httpx.stream("POST", server.url + CHAT, json=body, timeout=60) as got:
                lines = got.iter_lines()
                assert [next(lines) for _ in range(9)]
                assert server.state()["slots_busy"] == 1
            assert eventually(lambda: server.state()["slots_busy"] == 0) < 2


def test_a_client_that_leaves_an_upload_leaves_nothing(tmp_path: Path) -> None:
    with running(tmp_path, pause=0.05) as server:
        with pytest.raises(httpx.TimeoutException):
            httpx.post(f"{server.url}/v1/pots/sea", content=LONG, timeout=0.5)
        eventually(lambda: server.state()["slots_busy"] == 0)
        with socket.create_connection(("127.0.0.1", port(server))) as raw:  # or in the middle of sending
            raw.sendall(
                b"POST /v1/pots/sea HTTP/1.1\r\nHost: localhost\r\nContent-Length: 999999\r\n\r\nhalf a te"
            )
            time.sleep(0.2)
        eventually(lambda: uploads_in(tmp_path / "spool") == [] and not list((tmp_path / "spool").iterdir()))
        assert json.loads(server.get("/v1/pots")[1])["data"] == []


def test_a_full_queue_answers_429_and_then_serves_again(tmp_path: Path) -> None:
    with running(tmp_path, pause=0.02, slots=1, queue=2) as server, ThreadPoolExecutor(8) as pool:
        calls = [
            pool.submit(httpx.post, server.url + CHAT, json=asked(tokens=30), timeout=60) for _ in range(8)
        ]
        got = [call.result() for call in calls]
        busy = [answer for answer in got if answer.status_code == 429]
        assert {answer.status_code for answer in got} == {200, 429}
        assert len(busy) == 5
        assert all(int(answer.headers["retry-after"]) >= 1 for answer in busy)
        assert busy[0].json()["error"]["type"] == "rate_limit_error"
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
