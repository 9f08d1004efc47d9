"""Parts of `benchmarks/card.py` in two minutes: all compile and warm up at once, then each is timed alone.

    python benchmarks/card_together.py --out DIR --seconds 145

A part is a process that says when it is warm and waits to be told to go on. When all are, or after `--warm`
seconds, they go on one after the other; those that are not warm by then stand still meanwhile and come last.
DIR/together.json has what was found so far, DIR/together.log everything that was said.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, TextIO

HERE = Path(__file__).resolve()
WARM, FOUND = "WARM", "FOUND "
PARTS = ("kernels", "read-fp8", "documents-8", "read-full", "decode-int4")
LINE, KERNELS = 118, 18  # characters of a value in the table, and lines of a profile


def part(name: str, args: argparse.Namespace) -> None:
    """Be one part: warm up, wait, and tell what is found."""
    sys.path[:0] = [
        str(HERE.parents[1] / "src"),
        str(HERE.parent),
    ]  # a borrowed machine has nothing installed
    from speed import layer_kernels, together_parts
    from speed.card_parts import Setting

    kinds: dict[str, Callable[..., Iterator[dict[str, Any]]]] = {
        "kernels": layer_kernels.kernel_times,
        "read": together_parts.read,
        "decode": together_parts.decode,
        "documents": together_parts.documents,
    }
    what, _, kind = name.partition("-")
    setting = Setting(args.shape, args.device, args.length, args.length)
    if args.device != "cuda" and what == "decode":
        kind = "full"
    going = kinds[what](setting, kind)
    print(FOUND + json.dumps(next(going)), flush=True)
    print(WARM, flush=True)
    sys.stdin.readline()
    for found in going:
        print(FOUND + json.dumps(found), flush=True)


def environment(name: str, device: str) -> dict[str, str]:
    """What a part's process sees: without a card kernels are interpreted."""
    return {**os.environ, **({"TRITON_INTERPRET": "1"} if name == "kernels" and device != "cuda" else {})}


class Part:
    """A part's process, seen from outside."""

    def __init__(self, name: str, args: argparse.Namespace, log: TextIO) -> None:
        told = ["--only", name, "--out", args.out, "--shape", args.shape, "--device", args.device]
        command = [sys.executable, HERE, *told, "--length", args.length]
        self.name, self.log, self.found = name, log, dict[str, Any]()
        self.said: queue.Queue[str | None] = queue.Queue()
        self.process = subprocess.Popen(
            [str(one) for one in command], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, env=environment(name, args.device),
        )  # fmt: skip
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        for line in self.process.stdout or ():
            self.log.write(f"{self.name}: {line}")
            self.log.flush()
            if line.startswith(FOUND):
                self._find(json.loads(line.removeprefix(FOUND)))
            if line.strip() == WARM:
                self.said.put(WARM)
        self.said.put(None)

    def _find(self, told: dict[str, Any]) -> None:
        """Take down what was found; a time that comes again is one more of a list."""
        for name, value in told.items():
            again = name in self.found and isinstance(value, float)
            self.found[name] = [*_list(self.found[name]), value] if again else value

    def hears(self, until: float) -> bool:
        """Say whether the part is warm, or has ended, by then."""
        try:
            self.said.put(self.said.get(timeout=max(0.01, until - time.perf_counter())))
        except queue.Empty:
            return False
        return True

    def go(self, until: float) -> None:
        """Have it timed, and wait until it has ended, or end it."""
        self.process.send_signal(signal.SIGCONT)
        if self.hears(until) and self.process.stdin and self.process.poll() is None:
            with suppress(BrokenPipeError):  # it has just ended
                self.process.stdin.write("\n")
                self.process.stdin.flush()
        try:
            code = self.process.wait(max(0.01, until - time.perf_counter()))
        except subprocess.TimeoutExpired:
            self.process.kill()
            code = -1
        if code:
            self.found["failed"] = "out of time" if code == -1 else f"ended with {code}: see the log"


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def table(found: dict[str, dict[str, Any]]) -> str:
    """All numbers, a line each; of a profile the costliest kernels."""
    profiles, lines = list[str](), list[str]()
    for name, told in found.items():
        for what, value in told.items():
            if what == "profile":
                profiles += [f"{name:<12} {k[:80]:<80} {v}" for k, v in list(value.items())[:KERNELS]]
                continue
            numbers = [f"{v:.4g}" for v in value] if isinstance(value, list) else value
            shown = f"{value:.5g}" if isinstance(value, float) else str(numbers)
            lines.append(f"{name:<12} {what:<38} {shown[:LINE]}")
    return "\n".join(profiles + lines)


def main() -> int:
    began = time.perf_counter()
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True, help="folder of the two files")
    parser.add_argument("--parts", default=",".join(PARTS), help="with commas between, in this order")
    parser.add_argument("--seconds", type=float, default=145, help="after which whatever runs is ended")
    parser.add_argument("--warm", type=float, default=80, help="after which warm parts are timed")
    parser.add_argument("--length", type=int, default=131072, help="tokens of a text")
    parser.add_argument("--shape", default="llama-3-8b", help="whose random weights")
    parser.add_argument("--device", default="cuda", help="cpu: to see that it runs, with --shape tiny")
    parser.add_argument("--only", default="", help=argparse.SUPPRESS)  # the part that this process is
    args = parser.parse_args()
    if args.only:
        part(args.only, args)
        return 0
    args.out.mkdir(parents=True, exist_ok=True)
    with (args.out / "together.log").open("w") as log:
        parts = [Part(name, args, log) for name in args.parts.split(",")]
        warm = [one for one in parts if one.hears(began + args.warm)]
        late = [one for one in parts if one not in warm]
        for one in late:
            one.process.send_signal(signal.SIGSTOP)
        for one in (*warm, *late):
            start = time.perf_counter()
            one.go(began + args.seconds)
            one.found |= {"begun_s": start - began, "ended_s": time.perf_counter() - began}
            found = {one.name: one.found for one in parts}
            (args.out / "together.json").write_text(json.dumps(found, indent=1) + "\n")
        print(table(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
