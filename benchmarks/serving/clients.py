"""Clients of a server on loopback: plain sockets, so that nothing but the server is measured."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

HEAD = "POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: {kind}\r\n"
TRIES = 50


@dataclass
class Visit:
    """One request: when it was sent, when its tokens came, what they said, or why there were none."""

    sent: float = 0.0
    moments: list[float] = field(default_factory=list)
    text: str = ""
    status: int = 0
    error: str = ""
    busy: int = 0  # how often the server said 429
    tokens: int = 0  # by the server's own count: a piece may have several

    @property
    def first_s(self) -> float | None:
        return self.moments[0] - self.sent if self.moments else None

    @property
    def gaps(self) -> list[float]:
        return [after - before for before, after in pairwise(self.moments)]


class Line:
    """A connection to the server, which is kept for the next request, as clients' libraries do."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._open: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def post(self, path: str, body: bytes, kind: str, visit: Visit) -> int:
        """Send a body and take the events of its answer; return the seconds to wait if the server is busy."""
        head = HEAD.format(path=path, kind=kind) + f"Content-Length: {len(body)}\r\n\r\n"
        reader, status = await self._begun(head.encode() + body)
        visit.status = int(status.split()[1])
        headers = {}
        while (line := await reader.readline()).strip():
            name, _, value = line.decode("latin-1").partition(":")
            headers[name.lower()] = value.strip()
        rest = b""
        async for data in _body(reader, headers):
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                _note(visit, line)
        _note(visit, rest)
        if headers.get("connection") == "close":
            self.close()
        return int(headers.get("retry-after", 0)) if visit.status == 429 else 0

    async def _begun(self, sent: bytes) -> tuple[asyncio.StreamReader, bytes]:
        """Send a request, on a new connection where the old one is gone; return the answer's first line."""
        while True:
            fresh = self._open is None
            if self._open is None:
                self._open = await asyncio.open_connection("127.0.0.1", self._port, limit=2**22)
            reader, writer = self._open
            writer.write(sent)
            status = await reader.readline()
            if status or fresh:
                return reader, status
            self.close()

    def close(self) -> None:
        """Let the connection go."""
        if self._open is not None:
            self._open[1].close()
            self._open = None


async def _body(reader: asyncio.StreamReader, headers: dict[str, str]) -> AsyncIterator[bytes]:
    """Yield a body as it comes."""
    if headers.get("transfer-encoding") != "chunked":
        yield await reader.readexactly(int(headers.get("content-length", 0)))
        return
    while size := int(await reader.readline(), 16):
        yield (await reader.readexactly(size + 2))[:-2]
    await reader.readline()


def _note(visit: Visit, line: bytes) -> None:
    if visit.status >= 400 and b'"error"' in line:
        visit.error = line.decode(errors="replace")[:300].strip()
    if line.startswith(b"data: {"):
        _take(visit, json.loads(line[6:]))


def _take(visit: Visit, event: dict[str, Any]) -> None:
    if "error" in event:
        visit.error = json.dumps(event["error"])[:300]
    visit.tokens = (event.get("usage") or {}).get("completion_tokens", visit.tokens)
    for choice in event.get("choices", ()):
        if piece := choice.get("delta", {}).get("content"):
            visit.moments.append(time.perf_counter())
            visit.text += piece


async def ask(
    port: int, messages: Sequence[dict[str, str]], tokens: int, keep: bool, line: Line | None = None
) -> Visit:
    """Ask with a stream of tokens; who is told that the server is busy comes back."""
    own, visit = line or Line(port), Visit(time.perf_counter())
    wanted = {"max_tokens": tokens, "keep": keep, "stream": True, "stream_options": {"include_usage": True}}
    body = json.dumps({"messages": list(messages), **wanted}).encode()
    try:
        for _ in range(TRIES):
            visit.error = ""
            wait = await own.post("/v1/chat/completions", body, "application/json", visit)
            if not wait:
                break
            visit.busy += 1
            await asyncio.sleep(wait)
    except (OSError, asyncio.IncompleteReadError, ValueError, IndexError) as error:
        visit.error = f"{type(error).__name__}: {error}"
        own.close()
    if line is None:
        own.close()
    return visit


async def upload(port: int, name: str, text: bytes) -> Visit:
    """Read a text into a kept pot."""
    visit, line = Visit(time.perf_counter()), Line(port)
    try:
        await line.post(f"/v1/pots/{name}?stream=true&replace=true", text, "text/plain", visit)
    finally:
        line.close()
    visit.moments.append(time.perf_counter())
    return visit


def words(tokens: int, bytes_a_token: float, seed: int) -> str:
    """Text of about so many tokens; another one for every seed."""
    size, parts, n = int(tokens * bytes_a_token), list[str](), seed
    total = 0
    while total < size:
        n = (n * 1103515245 + 12345) % 2**31
        parts.append(WORDS[n % len(WORDS)])
        total += len(parts[-1]) + 1
    return " ".join(parts)[:size]


STORY = (
    "the keeper of a light wrote down what ships went by in the night and how the sea was when they did"
    " so every morning there was a page with names winds hours and now and then a word on what he thought"
)
WORDS = STORY.split()


def share(values: Iterable[float | None], part: float) -> float | None:
    """The value that this share of all values is not above; None of none."""
    known = sorted(value for value in values if value is not None)
    return known[min(len(known) - 1, int(part * len(known)))] if known else None
