"""Raw sockets against a real server: bodies that drip or have two ends, and what a killed server left."""

from __future__ import annotations

import json
import os
import signal
import socket
import threading
from contextlib import suppress
from pathlib import Path

import httpx
import psutil

import toy_pots as toy
from infinipot.store import LocalStore
from toy_server import Running, running
from waiting import eventually

HEAD = b"POST /v1/pots/drip%d HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000000\r\n\r\n"
KEY = "key-of-the-first-tenant"
HOSTILE = Path(__file__).parents[2] / "docs" / "results" / "hostile.md"
HEADING = "\n## Over a raw connection\n"
TABLE = """
{} requests whose end or meaning a proxy in front may see elsewhere, with another request in what may be a
body. Made and checked by `tests/e2e/test_slow_senders.py`: each gets one answer, and its connection is
closed. Uploads that drip lose their places there, and so does a refused body that goes on, and a download
that is not taken.

| request | status | message |
|---|---|---|
"""


def connected(server: Running) -> socket.socket:
    return socket.create_connection(("127.0.0.1", int(server.url.rpartition(":")[2])), timeout=20)


def everything(raw: socket.socket) -> bytes:
    """What comes until the server closes the connection."""
    found = b""
    with suppress(ConnectionError):
        while part := raw.recv(4096):
            found += part
    return found


class Sender(threading.Thread):
    """Sends a body quickly until told to drip, then a byte now and then for as long as the server lets it."""

    def __init__(self, server: Running, head: bytes) -> None:
        super().__init__(daemon=True)
        self.drips, self.answer = threading.Event(), b""
        self._server, self._head = server, head
        self.start()

    def run(self) -> None:
        with connected(self._server) as raw, suppress(ConnectionError):  # it may be closed while we send
            raw.sendall(self._head)
            raw.settimeout(0.1)
            while True:
                with suppress(TimeoutError):
                    if not (part := raw.recv(4096)):
                        break
                    self.answer += part
                raw.sendall(b"x" if self.drips.is_set() else b"x" * 2000)


def test_dripping_uploads_lose_their_places(tmp_path: Path) -> None:
    with running(tmp_path, idle_s=3, least_rate=1000) as server:
        senders = [Sender(server, HEAD % number) for number in range(4)]
        eventually(lambda: len(list((tmp_path / "spool").glob("*/upload"))) == 4)
        assert httpx.post(f"{server.url}/v1/pots/me", content="text", timeout=60).status_code == 429
        for sender in senders:
            sender.drips.set()
        for sender in senders:
            sender.join(60)
        assert [sender.answer[:12] for sender in senders] == [b"HTTP/1.1 408"] * 4
        assert httpx.post(f"{server.url}/v1/pots/me", content="text", timeout=60).status_code == 201
        assert list((tmp_path / "spool").iterdir()) == []


def test_a_refused_body_does_not_hold_its_connection(tmp_path: Path) -> None:
    """A wrong key is refused before the body; bytes that keep coming would hold one of 512 connections."""
    with running(tmp_path, keys=[KEY]) as server:
        sender = Sender(server, HEAD % 1)
        sender.drips.set()
        sender.join(60)  # without a bound it would go on for ever
        assert not sender.is_alive()
        assert sender.answer.startswith(b"HTTP/1.1 401")


def sockets(server: Running) -> int:
    """Connections to clients that the server holds open."""
    found = psutil.Process(server.process.pid).net_connections("tcp")
    return sum(one.status != psutil.CONN_LISTEN for one in found)


def test_a_download_that_is_not_taken_loses_its_place_and_its_connection(tmp_path: Path) -> None:
    LocalStore(tmp_path / "pots").save("big", toy.filled(1, 24), toy.card())
    with running(tmp_path, max_downloads=1, send_s=1) as server, socket.socket() as raw:
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        raw.connect(("127.0.0.1", int(server.url.rpartition(":")[2])))
        raw.sendall(b"GET /v1/pots/big/file HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert raw.recv(12) == b"HTTP/1.1 200"
        eventually(lambda: sockets(server) == 0)
        with httpx.stream("GET", f"{server.url}/v1/pots/big/file", timeout=60) as again:
            assert again.status_code == 200
            assert sum(map(len, again.iter_bytes())) == int(again.headers["content-length"]) > 24e6
        assert list((tmp_path / "spool").iterdir()) == []


LINE = b"POST /v1/chat/completions HTTP/1.1\r\n"
HOST, KIND = b"Host: localhost\r\n", b"Content-Type: application/json\r\n"
CHUNKED, LENGTH = b"Transfer-Encoding: chunked\r\n", b"Content-Length: 6\r\n"
EVIL = b"Host: evil.example\r\nConnection: close\r\n\r\n"
ENDING = b"\r\n0\r\n\r\n"  # of a head, and of a body in chunks that has none
SMUGGLED = b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n"


def posted(*lines: bytes, ending: bytes = ENDING) -> bytes:
    """A request with these lines in its head, and another one in what may be taken for its body."""
    return LINE + HOST + KIND + b"".join(lines) + ending + SMUGGLED


RAW = {
    "a length and chunks": posted(LENGTH, CHUNKED),
    "chunks and a length": posted(CHUNKED, LENGTH),
    "a length in odd letters, and chunks": posted(b"content-LENGTH: 6\r\n", CHUNKED),
    "a length and an encoding that is none": posted(LENGTH, b"Transfer-Encoding: identity\r\n"),
    "a length and chunks after a tab": posted(LENGTH, b"Transfer-Encoding:\tchunked\r\n"),
    "a length and chunks before a space": posted(LENGTH, b"Transfer-Encoding : chunked\r\n"),
    "a length and chunks on a folded line": posted(LENGTH, b"Transfer-Encoding:\r\n chunked\r\n"),
    "a length and chunks hidden by a bare CR": posted(LENGTH, b"X: y\rTransfer-Encoding: chunked\r\n"),
    "chunks, twice": posted(CHUNKED, CHUNKED),
    "chunks, and an encoding unknown": posted(b"Transfer-Encoding: chunked, x\r\n"),
    "an encoding unknown": posted(b"Transfer-Encoding: xchunked\r\n"),
    "two lengths": posted(LENGTH, b"Content-Length: 7\r\n"),
    "two lengths in one line": posted(b"Content-Length: 6, 7\r\n"),
    "a length with a sign": posted(b"Content-Length: +6\r\n"),
    "a length in hexadecimal": posted(b"Content-Length: 0x6\r\n"),
    "a length that is none": posted(b"Content-Length: six\r\n"),
    "a chunk of -1 bytes": posted(CHUNKED, ending=b"\r\n-1\r\n"),
    "a chunk of 2^64 bytes": posted(CHUNKED, ending=b"\r\n" + b"F" * 21 + b"\r\n"),
    "a chunk longer than it says": posted(CHUNKED, ending=b"\r\n1\r\nabc\r\n0\r\n\r\n"),
    "two hosts": b"GET /health HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n",
    "no host": b"GET /health HTTP/1.1\r\n\r\n",
    "an address of another host": b"GET http://evil.example/v1/pots HTTP/1.1\r\n" + EVIL,
    "a head of 500,000 bytes": b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: "
    + b"a" * 500_000
    + b"\r\n\r\n",
    "NUL in a head": b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: a\0b\r\n\r\n",
    "no HTTP": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
}


def told_of(answer: bytes) -> tuple[str, str]:
    """The status of an answer and its message."""
    head, _, body = answer.partition(b"\r\n\r\n")
    with suppress(ValueError, KeyError, TypeError):
        return head[9:12].decode(), str(json.loads(body)["error"]["message"]).replace("|", "\\|")
    lines = body.decode(errors="replace").splitlines()  # it may come in chunks, with their sizes between
    return head[9:12].decode(), " ".join(line for line in lines if " " in line)


def test_no_request_is_smuggled_in_another_ones_body(tmp_path: Path) -> None:
    """Each is refused and its connection closed; INFINIPOT_WRITE_DOCS=1 writes the table in the docs."""
    rows = []
    with running(tmp_path) as server:
        for what, sent in RAW.items():
            with connected(server) as raw:
                raw.sendall(sent)
                answer = everything(raw)
            assert answer.startswith((b"HTTP/1.1 4", b"HTTP/1.1 501")), (what, answer)
            assert answer.count(b"HTTP/1.1") == 1, what
            assert b"owned_by" not in answer, what
            rows.append(f"| {what} | {' | '.join(told_of(answer))} |\n")
            assert server.get("/health")[0] == 200
    before, heading, told = HOSTILE.read_text().partition(HEADING)
    table = TABLE.format(len(RAW)) + "".join(rows)
    if os.environ.get("INFINIPOT_WRITE_DOCS"):
        told = table
        HOSTILE.write_text(before + HEADING + table)
    assert told == table, heading


def test_what_a_killed_server_left_is_removed_by_the_next(tmp_path: Path) -> None:
    spool = tmp_path / "spool"
    with running(tmp_path) as server, connected(server) as raw:
        raw.sendall(HEAD % 1 + b"x" * 50_000)
        eventually(lambda: bool(list(spool.glob("*/upload"))))
        server.process.send_signal(signal.SIGKILL)
        server.process.wait(20)
    assert len(list(spool.iterdir())) == 2  # a folder and its lock
    (spool / "somebody-elses").mkdir()
    with running(tmp_path) as server:
        assert [path.name for path in spool.iterdir()] == ["somebody-elses"]
        assert "had left" in server.log.read_text()
        assert json.loads(server.get("/v1/pots")[1])["data"] == []
