"""Clients in processes of their own, as people are on machines of their own: they do not wait for each other.

Moments are those of the machine's one monotonic clock, so that all processes' visits can be put together.
"""

from __future__ import annotations

import asyncio
import json
import sys
import threading
import time
from asyncio.subprocess import PIPE, Process
from dataclasses import asdict
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parents[1])]

from serving.clients import Line, Visit, ask  # noqa: E402  found by the line above

PROCESSES = 8
STARTING_S = 1.5  # until all processes are there


async def asking(
    port: int, clients: int, tokens: int, seconds: float, spread: float = 0.0, stop: Any = None
) -> tuple[float, list[Visit]]:
    """So many clients ask one short question after the other; returns when they began, and all visits.

    They begin together, or one after the other within `spread` seconds, and end after some seconds or with
    `stop`; each asks once in any case.
    """
    begin, many = time.perf_counter() + STARTING_S, min(PROCESSES, clients)
    told = {"port": port, "clients": clients, "tokens": tokens, "begin": begin, "spread": spread}
    told |= {"until": begin + seconds}
    started = [await _started({**told, "numbers": [*range(first, clients, many)]}) for first in range(many)]
    read = asyncio.gather(*(one.stdout.read() for one in started if one.stdout is not None))
    if stop is not None:
        await asyncio.wait({read, stop}, return_when=asyncio.FIRST_COMPLETED)
        for one in started:
            if one.stdin is not None:
                one.stdin.close()
    outputs = await read
    for one in started:
        await one.wait()
    return begin, [Visit(**visit) for output in outputs for visit in json.loads(output)]


async def _started(told: dict[str, Any]) -> Process:
    command = [sys.executable, __file__, json.dumps(told)]
    return await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE)


async def _ask_all(told: dict[str, Any]) -> list[Visit]:
    """What one of the processes does, until its time is over or its input ends."""
    visits, ended = list[Visit](), threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()

    async def one(number: int) -> None:
        begin = told["begin"] + told["spread"] * number / told["clients"]
        await asyncio.sleep(begin - time.perf_counter())
        line = Line(told["port"])
        talk = [{"role": "user", "content": f"Client {number} asks: how was the sea?"}]
        while True:
            visits.append(await ask(told["port"], talk, told["tokens"], keep=False, line=line))
            visits[-1].text = ""
            if time.perf_counter() >= told["until"] or ended.is_set():
                break
        line.close()

    await asyncio.gather(*(one(number) for number in told["numbers"]))
    return visits


if __name__ == "__main__":
    print(json.dumps([asdict(visit) for visit in asyncio.run(_ask_all(json.loads(sys.argv[1])))]))
