"""A soak of a real server: requests of all kinds, many at once, a tenth of whose senders leave.

    python benchmarks/soak.py --requests 2000 --at-once 32 --out docs/results/soak-cpu.json -- --model smollm2

What stands after `--` goes to `infinipot serve`, on a CPU or a card. Who is told to come back later (429 with
a Retry-After) does. `where` in the result is resident memory by kind, in tenths of the time; with `--look`
the server writes down what malloc, Python and torch hold. The exit code is 0 where nothing failed, memory was
flat within 3%, every slot is free afterwards, and nothing is left on disk.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import jsonschema

from served import Served
from serving.mappings import flat, resident

SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 8}, "sure": {"type": "boolean"}},
    "required": ["name", "sure"],
    "additionalProperties": False,
}
FORM = {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}}
WRONG = (
    ("POST", "/v1/chat/completions", b'{"messages": [', 400),
    ("POST", "/v1/chat/completions", b'{"messages": [], "logit_bias": {"1": 2}}', 400),
    ("POST", "/v1/pots/{name}", b"%PDF-1.7 \0\1\2", 400),
    ("GET", "/v1/pots/nowhere", b"", 404),
    ("PUT", "/v1/pots/{name}/file", b"no pot", 400),
)
LOOKS = ("/health", "/ready", "/v1/models", "/v1/state", "/metrics", "/v1/pots", "/openapi.json", "/")
ENDS = ("[DONE]", "response.completed", "response.incomplete")
LEAVING, FLAT = 0.1, 0.03


class Left(Exception):  # noqa: N818  no error: a sender who leaves on purpose
    """The sender goes away in the middle of a body."""


@dataclass
class Soak:
    """What is sent, and what came back."""

    client: httpx.AsyncClient
    model: str
    words: list[int]
    tokens: int
    done: Counter[str] = field(default_factory=Counter)
    left: Counter[str] = field(default_factory=Counter)
    busy: int = 0
    failures: list[str] = field(default_factory=list)
    seconds: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))

    async def request(self, number: int) -> None:
        """Send one request of a kind that its number chooses."""
        chance = random.Random(number)
        kind = chance.choices([name for name, _ in KINDS], [weight for _, weight in KINDS])[0]
        began = time.monotonic()
        try:
            await getattr(self, kind)(chance, chance.random() < LEAVING, number)
            self.done[kind] += 1
            self.seconds[kind].append(time.monotonic() - began)
        except Left:
            self.left[kind] += 1
        except Exception as error:  # whatever it is, it is counted
            self.failures.append(f"{kind} {number}: {type(error).__name__} {str(error)[:300]}")

    def text(self, chance: random.Random) -> str:
        return " ".join(f"word{chance.randrange(999)}" for _ in range(chance.choice(self.words)))

    def said(self, chance: random.Random, **more: Any) -> dict[str, Any]:
        messages = [{"role": "user", "content": f"{self.text(chance)}\n\nWhat is this?"}]
        return {"messages": messages, "model": self.model, "max_tokens": self.tokens, **more}

    async def send(self, method: str, path: str, wanted: int = 200, **more: Any) -> httpx.Response:
        """Send until the server has a place; an answer of another status is a failure."""
        while True:
            content = more["content"]() if callable(more.get("content")) else more.get("content")
            got = await self.client.request(method, path, **{**more, "content": content})
            if got.status_code != 429:
                break
            self.busy += 1
            await asyncio.sleep(int(got.headers["Retry-After"]))
        if got.status_code != wanted:
            raise ValueError(f"{method} {path} {got.status_code}: {got.text[:200]}")
        return got

    async def follow(self, path: str, body: dict[str, Any], leaves: bool, chance: random.Random) -> str:
        """Take a stream to its end, or go away in the middle of it."""
        while True:
            async with self.client.stream("POST", path, json={**body, "stream": True}) as got:
                if got.status_code == 200:
                    text = ""
                    async for part in got.aiter_text():
                        text += part
                        if leaves:
                            await asyncio.sleep(chance.random())
                            raise Left
                    if not any(end in text for end in ENDS):
                        raise ValueError(f"cut off: {text[-200:]}")
                    return text
                if got.status_code != 429:
                    raise ValueError(f"{got.status_code}: {(await got.aread())[:200]!r}")
                self.busy += 1
                wait = int(got.headers["Retry-After"])
            await asyncio.sleep(wait)

    async def chat(self, chance: random.Random, leaves: bool, number: int) -> None:
        del number
        body = self.said(chance, keep=chance.random() < 0.3)
        if leaves or chance.random() < 0.5:
            await self.follow("/v1/chat/completions", body, leaves, chance)
        else:
            assert (await self.send("POST", "/v1/chat/completions", json=body)).json()["usage"]

    async def turns(self, chance: random.Random, leaves: bool, number: int) -> None:
        """A conversation of two turns, whose pot is kept between them."""
        del number
        body = self.said(chance)
        first = (await self.send("POST", "/v1/chat/completions", json=body)).json()["choices"][0]["message"]
        answer = {"role": "assistant", "content": first["content"]}
        body["messages"] += [answer, {"role": "user", "content": "And then?"}]
        await self.follow("/v1/chat/completions", body, leaves, chance)

    async def completion(self, chance: random.Random, leaves: bool, number: int) -> None:
        del number
        body = {"prompt": self.text(chance), "model": self.model, "max_tokens": self.tokens}
        await self.follow("/v1/completions", body, leaves, chance)

    async def response(self, chance: random.Random, leaves: bool, number: int) -> None:
        del number
        body = {"input": self.text(chance), "model": self.model, "max_output_tokens": max(16, self.tokens)}
        await self.follow("/v1/responses", body, leaves, chance)

    async def schema(self, chance: random.Random, leaves: bool, number: int) -> None:
        body = self.said(chance, response_format=FORM, max_tokens=60, temperature=0.8, seed=number)
        if leaves:
            await self.follow("/v1/chat/completions", body, leaves, chance)
        got = (await self.send("POST", "/v1/chat/completions", json=body)).json()["choices"][0]
        jsonschema.validate(json.loads(got["message"]["content"]), SCHEMA)

    async def several(self, chance: random.Random, leaves: bool, number: int) -> None:
        body = self.said(chance, n=2, temperature=0.8, seed=number, logprobs=True)
        if leaves:
            await self.follow("/v1/chat/completions", body, leaves, chance)
        got = (await self.send("POST", "/v1/chat/completions", json=body)).json()
        assert len(got["choices"]) == 2

    async def pot(self, chance: random.Random, leaves: bool, number: int) -> None:
        """A text is read, asked about, looked into, deleted; who leaves does so while it is sent."""
        path, text = f"/v1/pots/soak-{number}", f"{self.text(chance)}\n".encode() * 4

        async def half() -> AsyncIterator[bytes]:
            yield text[: len(text) // 2]
            raise Left

        await self.send("POST", f"{path}?title=soak.txt", 201, content=half if leaves else text)
        try:
            asked = self.said(chance, pot=f"soak-{number}", keep=False)
            await self.send("POST", "/v1/chat/completions", json=asked)
            assert (await self.send("GET", f"{path}/words")).json()["words"]
        finally:
            await self.send("DELETE", path)

    async def wrong(self, chance: random.Random, leaves: bool, number: int) -> None:
        del leaves
        method, path, body, status = chance.choice(WRONG)
        path = path.format(name=f"wrong-{number}")  # two that write one pot are told so with a 409
        headers = {"Content-Type": "application/json"}
        await self.send(method, path, status, content=body, headers=headers)

    async def look(self, chance: random.Random, leaves: bool, number: int) -> None:
        del leaves, number
        await self.send("GET", chance.choice(LOOKS))


KINDS = (  # and how often each comes
    ("chat", 40),
    ("turns", 8),
    ("completion", 10),
    ("response", 10),
    ("schema", 8),
    ("several", 4),
    ("pot", 8),
    ("wrong", 6),
    ("look", 6),
)


async def soaked(
    server: Served, args: argparse.Namespace, held: list[tuple[float, int]], where: list[dict[str, int]]
) -> Soak:
    """Send everything; note now and then what the server says that it holds, and where."""
    numbers, ended = iter(range(args.requests)), asyncio.Event()
    limits = httpx.Limits(max_connections=args.at_once + 4)
    async with httpx.AsyncClient(base_url=server.url, timeout=600, limits=limits) as client:
        model = (await client.get("/v1/models")).json()["data"][0]["id"]
        soak = Soak(client, model, [int(n) for n in args.words.split(",")], args.tokens)

        async def sender() -> None:
            for number in numbers:
                await soak.request(number)

        async def watch() -> None:
            while not ended.is_set():
                held.append((time.monotonic(), (await client.get("/v1/state")).json()["memory_bytes"]))
                if not len(held) % 4:
                    where.append(await asyncio.to_thread(resident, server.process.pid))
                await asyncio.sleep(0.5)

        watching = asyncio.create_task(watch())
        await asyncio.gather(*(sender() for _ in range(args.at_once)))
        ended.set()
        await watching
    return soak


def told(server: Served, soak: Soak, began: float, held: list[tuple[float, int]]) -> dict[str, Any]:
    """Return what is written: counts, times, memory, and what is left."""
    ended = time.monotonic()
    deadline = ended + 30
    while time.monotonic() < deadline and (state := server.state())["slots_busy"]:
        time.sleep(0.5)
    state = server.state()
    times = {kind: sorted(all_of) for kind, all_of in soak.seconds.items()}
    return {
        "command": server.command,
        "requests": sum(soak.done.values()) + sum(soak.left.values()) + len(soak.failures),
        "done": dict(soak.done),
        "left": dict(soak.left),
        "answered_429": soak.busy,
        "failures": soak.failures,
        "seconds": round(ended - began, 1),
        "median_s": {kind: round(all_of[len(all_of) // 2], 2) for kind, all_of in times.items()},
        "resident_bytes": flat(server.since(began)),
        "server_says_bytes": flat([size for at, size in held if at >= began]),
        "bound_bytes": state["memory_bound_bytes"],
        "slots_busy_afterwards": state["slots_busy"],
        "queued_afterwards": state["queued"],
    }


def main() -> None:
    words = [*sys.argv[1:], "--"]
    mine, serving = words[: words.index("--")], words[words.index("--") + 1 : -1]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--at-once", type=int, default=32)
    parser.add_argument("--words", default="5,20,60", help="lengths that are mixed")
    parser.add_argument("--tokens", type=int, default=8, help="of an answer, at most")
    parser.add_argument("--look", type=Path, metavar="FILE", help="where the server tells what it holds")
    args = parser.parse_args(mine)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "spool").mkdir()
        own = ("--spool", str(folder / "spool"))
        server = Served(serving or ["--model", "smollm2"], folder, *own, look=args.look)
        try:
            server.wait()
            began, held, where = time.monotonic(), [], list[dict[str, int]]()
            soak = asyncio.run(soaked(server, args, held, where))
            found = told(server, soak, began, held)
            found["where"] = {kind: flat([one.get(kind, 0) for one in where]) for kind in (where or [{}])[0]}
            found["left_on_disk"] = sorted(path.name for path in (folder / "spool").glob("*/*"))
            found["pots_left"] = sorted(path.name for path in (folder / "pots").glob("soak-*"))
        finally:
            found_code = server.stop()
        found["server_exit"] = found_code
    growth = max(found[name]["growth"] for name in ("resident_bytes", "server_says_bytes"))
    clean = not found["left_on_disk"] and not found["pots_left"] and not found["failures"]
    idle = not found["slots_busy_afterwards"] and not found["queued_afterwards"]
    found["held"] = {
        "no_failure": not found["failures"],
        "flat_within_3_percent": growth <= FLAT,
        "idle": idle,
    }
    args.out.write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps(found))
    sys.exit(0 if clean and idle and growth <= FLAT and found_code == 0 else 1)


if __name__ == "__main__":
    main()
