"""The same measurement in several processes, in turns: rounds, workers, and what the ratios spread over.

A worker is a script in a process of its own, with the sources of one checkout. The script prints a line of
JSON when it is ready, reads requests as lines of JSON, and answers each with one line. Only one worker works
at a time, and the order turns from round to round, so that a slow minute hits all of them.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

Answer = dict[str, Any]
MARK = '{"worker"'  # lines that begin otherwise are not a worker's own: libraries print too


class Worker:
    """A script that runs with the sources of a checkout and answers requests."""

    def __init__(self, script: Path, checkout: Path, words: Sequence[str]) -> None:
        env = {**os.environ, "PYTHONPATH": str(checkout.resolve() / "src")}
        # -P: the scripts' own folder hides no module of the checkout.
        command = [sys.executable, "-P", str(script), *words]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=env)
        self.ready = self._answer()

    def ask(self, **request: Any) -> Answer:
        """Send a request and wait for the answer."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def close(self) -> int:
        """End the process; return its exit code."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        code = self._process.wait()
        self._process.stdout.close()
        return code

    def _answer(self) -> Answer:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith(MARK):
                found: Answer = json.loads(line)
                return found
        raise SystemExit(f"a worker ended with code {self.close()}: its message is above")


def serve(about: Mapping[str, Any], handlers: Mapping[str, Callable[..., Mapping[str, Any]]]) -> None:
    """In a worker: say that it is ready, then answer requests until there are no more."""
    _say(about)
    for line in sys.stdin:
        request = json.loads(line)
        _say(handlers[request.pop("do")](**request))


def _say(answer: Mapping[str, Any]) -> None:
    print(json.dumps({"worker": True, **answer}), flush=True)


@contextmanager
def closing(workers: Mapping[str, Worker]) -> Iterator[None]:
    """End all workers when the block ends."""
    try:
        yield
    finally:
        for worker in workers.values():
            worker.close()


def turned(names: Sequence[str], number: int) -> list[str]:
    """Return the names in a round's order: none is always first."""
    first = number % len(names)
    return [*names[first:], *names[:first]]


def spread(ratios: Sequence[float]) -> dict[str, float]:
    """Return the least, the median and the most."""
    found = {"least": min(ratios), "median": statistics.median(ratios), "most": max(ratios)}
    return {name: round(value, 4) for name, value in found.items()}


def ratios(rounds: Sequence[Mapping[str, Answer]], name: str, base: str, value: str) -> dict[str, float]:
    """Return how a value of one worker compares with another's, round by round."""
    return spread([one[name][value] / one[base][value] for one in rounds])
