"""Raw sockets against a real server: bodies that drip or have two ends, and what a killed server left."""

from __future__ import annotations

import json
import signal
import socket
import threading
import time
from contextlib import suppress
from pathlib import Path

import httpx

from toy_server import Running, running

HEAD = b"POST /v1/pots/drip%d HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\n"
KEY = "key-of-the-first-tenant"


def connected(server: Running) -> socket.socket:
    return socket.create_connection(("127.0.0.1", int(server.url.rpartition(":")[2])), timeout=20)


def everything(raw: socket.socket) -> bytes:
    """What comes until the server closes the connection."""
    found = b""
    with suppress(ConnectionError):
        while part := raw.recv(4096):
            found += part
    return found


def dripping(server: Running, head: bytes, end: threading.Event, found: list[bytes]) -> None:
    """Send a byte now and then, for as long as the server lets us."""
    answer = b""
    with connected(server) as raw, suppress(ConnectionError):  # it may be closed while we send
        raw.sendall(head)
        raw.settimeout(0.1)
        while not end.is_set():
            with suppress(TimeoutError):
                if not (part := raw.recv(4096)):
                    break
                answer += part
            raw.sendall(b"x")
    found.append(b"held" if end.is_set() else answer)


def drip(server: Running, heads: list[bytes], seconds: float) -> tuple[list[threading.Thread], list[bytes]]:
    found: list[bytes] = []
    end = threading.Event()
    timer = threading.Timer(seconds, end.set)
    timer.daemon = True
    timer.start()
    threads = [threading.Thread(target=dripping, args=(server, head, end, found)) for head in heads]
    for thread in threads:
        thread.start()
    return threads, found


def test_dripping_uploads_lose_their_places(tmp_path: Path) -> None:
    with running(tmp_path, idle_s=1, least_rate=1000) as server:
        threads, found = drip(server, [HEAD % number for number in range(4)], 15)
        time.sleep(0.3)
        assert httpx.post(f"{server.url}/v1/pots/me", content="text", timeout=20).status_code == 429
        time.sleep(1.5)
        assert httpx.post(f"{server.url}/v1/pots/me", content="text", timeout=20).status_code == 201
        for thread in threads:
            thread.join(20)
        assert [answer[:12] for answer in found] == [b"HTTP/1.1 408"] * 4
        assert list((tmp_path / "spool").iterdir()) == []


def test_a_refused_body_does_not_hold_its_connection(tmp_path: Path) -> None:
    """A wrong key is refused before the body; bytes that keep coming would hold one of 512 connections."""
    with running(tmp_path, keys=[KEY]) as server:
        started = time.monotonic()
        threads, found = drip(server, [HEAD % 1], 15)
        threads[0].join(20)
        assert found[0].startswith(b"HTTP/1.1 401")
        assert time.monotonic() - started < 8


def test_two_lengths_close_the_connection(tmp_path: Path) -> None:
    """The second request, smuggled in the first one's body, is not answered."""
    smuggled = b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n"
    head = (
        b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        b"Content-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
    )
    others = [
        head.replace(b"Content-Length: 6", b"content-LENGTH: 6"),
        head.replace(b"Transfer-Encoding: chunked", b"Transfer-Encoding: identity"),
        head.replace(b"Transfer-Encoding: chunked", b"Content-Length: 7"),
        head.replace(b"Transfer-Encoding: chunked", b"Transfer-Encoding : chunked"),
        head.replace(b"Transfer-Encoding: chunked", b"Transfer-Encoding:\tchunked"),
    ]
    with running(tmp_path) as server:
        for one in (head, *others):
            with connected(server) as raw:
                raw.sendall(one + smuggled)
                answer = everything(raw)
            assert answer.startswith((b"HTTP/1.1 400", b"HTTP/1.1 501")), answer
            assert answer.count(b"HTTP/1.1") == 1
            assert b"owned_by" not in answer
        assert server.get("/health")[0] == 200


def test_what_a_killed_server_left_is_removed_by_the_next(tmp_path: Path) -> None:
    spool = tmp_path / "spool"
    with running(tmp_path) as server, connected(server) as raw:
        raw.sendall(HEAD % 1 + b"x" * 50_000)
        for _ in range(100):
            if list(spool.glob("*/upload")):
                break
            time.sleep(0.05)
        server.process.send_signal(signal.SIGKILL)
        server.process.wait(20)
    assert len(list(spool.iterdir())) == 2  # a folder and its lock
    (spool / "somebody-elses").mkdir()
    with running(tmp_path) as server:
        assert [path.name for path in spool.iterdir()] == ["somebody-elses"]
        assert "had left" in server.log.read_text()
        assert json.loads(server.get("/v1/pots")[1])["data"] == []
