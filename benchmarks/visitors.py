"""What `benchmarks/load.py` lets locust do: requests of mixed lengths, some of whose senders leave early.

Not run by hand. Who is answered with 429 and a Retry-After comes back after that time.
"""

from __future__ import annotations

import os
import random
import threading

import gevent
from locust import HttpUser, constant, task

COUNT = int(os.environ["LOAD_COUNT"])
WORDS = [int(n) for n in os.environ["LOAD_WORDS"].split(",")]
LEAVING = float(os.environ["LOAD_LEAVING"])
MODEL = os.environ["LOAD_MODEL"]
TOKENS = int(os.environ["LOAD_TOKENS"])
_lock = threading.Lock()
_taken = _present = 0


def number() -> int | None:
    """The next request's number, as long as there are any."""
    global _taken
    with _lock:
        if _taken >= COUNT:
            return None
        _taken += 1
        return _taken


class Visitor(HttpUser):
    wait_time = constant(0)

    def on_start(self) -> None:
        global _present
        with _lock:
            _present += 1

    @task
    def ask(self) -> None:
        mine = number()
        if mine is None:
            self._leave_for_good()
            return
        chance = random.Random(mine)
        text = " ".join(f"word{chance.randrange(999)}" for _ in range(chance.choice(WORDS)))
        leaves = chance.random() < LEAVING
        body = {
            "model": MODEL,
            "messages": [{"role": "user", "content": f"{text}\n\nWhat is this, number {mine}?"}],
            "max_tokens": TOKENS,
            "stream": leaves or chance.random() < 0.5,
            "keep": chance.random() < 0.3,
        }
        while not self._send(body, leaves, chance):  # 429: come back when told to
            pass

    def _leave_for_good(self) -> None:
        """Stop; the last one turns off the light."""
        global _present
        with _lock:
            _present -= 1
            last = _present == 0
        if last:
            gevent.spawn(self.environment.runner.quit)
        gevent.sleep(3600)

    def _send(self, body: dict, leaves: bool, chance: random.Random) -> bool:
        where = "/v1/chat/completions"
        name = "leaves" if leaves else "stays"
        with self.client.post(where, json=body, stream=True, catch_response=True, name=name) as answer:
            if answer.status_code == 429 and answer.headers.get("Retry-After", "").isdigit():
                answer.request_meta["name"] = "429"
                answer.success()
                gevent.sleep(int(answer.headers["Retry-After"]))
                return False
            if answer.status_code != 200:
                answer.failure(f"{answer.status_code}: {answer.text[:200]}")
                return True
            if leaves:
                next(answer.iter_content(64), b"")
                gevent.sleep(chance.random())
                answer.close()
                answer.success()
                return True
            data = answer.content
            if b"data: [DONE]" in data[-32:] or b'"usage"' in data:
                answer.success()
            else:
                answer.failure(f"cut off: {data[-200:]!r}")
            return True
