"""A whole server with a toy model, as a process of its own: `python tests/toy_server.py '{"slots": 2}'`.

It prints its port. `pause` makes every forward pass take that long. Answers end where they were told to, and
never because the toy happens to say so: rounding, and with it that end, differs among processors. A text with
FAULT in it makes the model fail as if memory had run out; one with DEATH in it ends the scheduler.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FAULT, DEATH = "OUT-OF-MEMORY", "KILL-THE-SCHEDULER"


def toy_engine(pause: float = 0.0) -> Any:
    """A toy engine; some texts break it."""
    import torch

    from infinipot.engine import Engine
    from infinipot.testing.model import ToyModel
    from infinipot.testing.tokenizer import ByteTokenizer

    torch.set_num_threads(1)
    model, tokenizer = ToyModel(), ByteTokenizer()
    forward, logits = model.forward, model.logits
    last = torch.zeros(model.vocabulary).index_fill(0, torch.tensor(sorted(tokenizer.stop_ids)), -1e4)

    def slowly(tokens: Any, pot: Any) -> Any:
        text = tokenizer.decode([token for token in tokens.flatten().tolist() if token < 256])
        if FAULT in text:
            raise RuntimeError("CUDA error: cannot allocate memory for tensor of secret size")
        if DEATH in text:
            raise SystemExit(1)
        time.sleep(pause)
        return forward(tokens, pot)

    model.forward = slowly  # type: ignore[method-assign]
    model.logits = lambda hidden: logits(hidden) + last  # type: ignore[method-assign]
    return Engine("toy", "chat", model, tokenizer)  # type: ignore[arg-type]


def ray_build(settings: Any) -> Any:
    """What a replica on Ray serves in tests."""
    from infinipot.recipes.recipe import Recipe

    return toy_engine(0.02), Recipe.named(capacity=settings.capacity, recall=settings.recall, format="chat")


def main(told: dict[str, Any]) -> None:
    from infinipot.recipes.recipe import Recipe
    from infinipot.server import lifecycle
    from infinipot.server.http import protocol, streams
    from infinipot.server.settings import Keys, Settings
    from infinipot.store import open_store

    logging.basicConfig(level=logging.DEBUG, stream=sys.stderr)
    protocol.HEADERS_S = told.pop("headers_s", protocol.HEADERS_S)
    streams.SEND_S = told.pop("send_s", streams.SEND_S)
    pause, store = told.pop("pause", 0.0), open_store(told["store"])
    keys, spool = Keys.of(told.pop("keys", [])), Path(told.pop("spool"))
    settings = Settings(model="toy", port=0, keys=keys, spool=spool, **{"capacity": 256, **told})
    taken = lifecycle.listen(settings)
    recipe = Recipe.named(capacity=settings.capacity, recall=settings.recall, format="chat")
    print(taken.getsockname()[1], flush=True)  # noqa: T201  for whoever started it
    lifecycle.serve(lifecycle.build_app(settings, toy_engine(pause), recipe, store), taken)


@dataclass
class Running:
    """A server that runs."""

    process: subprocess.Popen[bytes]
    url: str
    log: Path
    folder: Path

    def get(self, path: str, key: str = "") -> tuple[int, bytes]:
        request = urllib.request.Request(self.url + path, headers={"X-API-Key": key} if key else {})
        try:
            with urllib.request.urlopen(request, timeout=20) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read()

    def state(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.get("/v1/state")[1])
        return found


@contextmanager
def running(folder: Path, **told: Any) -> Iterator[Running]:
    """Start a server; end it at the end."""
    (folder / "spool").mkdir(exist_ok=True)
    told = {"store": str(folder / "pots"), "spool": str(folder / "spool"), **told}
    log = folder / "log.txt"
    with log.open("wb") as errors:
        process = subprocess.Popen(
            [sys.executable, __file__, json.dumps(told)],
            stdout=subprocess.PIPE,
            stderr=errors,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        assert process.stdout is not None
        try:
            port = process.stdout.readline().decode().strip()
            assert port, log.read_text()
            server = Running(process, f"http://127.0.0.1:{port}", log, folder)
            _await_ready(server, (told.get("keys") or [""])[0])
            yield server
        finally:
            if process.poll() is None:
                process.kill()
            process.wait(20)
            process.stdout.close()


def _await_ready(server: Running, key: str) -> None:
    for _ in range(600):
        assert server.process.poll() is None, server.log.read_text()
        try:
            if server.get("/ready", key)[0] == 200:
                return
        except OSError:
            pass
        time.sleep(0.05)
    raise AssertionError(server.log.read_text())


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
