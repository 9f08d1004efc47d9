"""Parts of `benchmarks/card.py` in two minutes: all compile and warm up at once, then each is timed alone.

    python benchmarks/card_together.py --out DIR --seconds 118

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
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any, TextIO

HERE = Path(__file__).resolve()
WARM, FOUND = "WARM", "FOUND "
EARLY = {"TORCHINDUCTOR_ENABLE_PDL": "1"}  # the compiler's kernels begin while the one before ends
PARTS: dict[str, tuple[str, dict[str, str]]] = {  # what is timed, and in what environment
    "decode-int4": ("decode-int4", {}),
    "documents-8": ("documents-8", {}),
    "read": ("read-full", {}),
    "read-fp8": ("read-fp8", {}),
    "read-fp8-early": ("read-fp8", EARLY),
    "read-early": ("read-full", EARLY),
}
SKIP = 8  # steps before those that are timed


def decode(setting: Any, weights: str) -> Iterator[dict[str, Any]]:
    """A decoded token on nearly full pots of 16 and of 8 bits: what was captured first is timed later."""
    from infinipot.bench.systems import engine

    subject = setting.subject(weights)
    readers = {bits: filled(subject, setting.recipe(pot_bits=bits), 160) for bits in (16, 8)}
    for reader in readers.values():
        token_ms(subject, reader, 32)
    yield {}
    for bits, reader in readers.items():
        rounds = [token_ms(subject, reader, 128 if setting.device == "cuda" else 24) for _ in range(3)]
        yield {f"decode_ms, pot of {bits} bits": rounds, f"engine, pot of {bits} bits": engine(reader)}
    yield {"steps": type(subject.model.steps).__name__, "fill": readers[16].pot.fill}


def filled(subject: Any, recipe: Any, room: int) -> Any:
    """A reader whose pot has that much room; no layer is compiled for it."""
    import torch

    reader = subject.reader(recipe)
    wanted = reader.config.capacity - room
    with torch.compiler.set_stance("force_eager"):
        while reader.pot.fill < wanted:
            reader.session.write(subject.text(min(2048, wanted - reader.pot.fill)), distil=False)
    subject.synchronize()
    return reader


def token_ms(subject: Any, reader: Any, new_tokens: int) -> float:
    """Milliseconds of a token of an answer, by a fork: graphs serve any pot."""
    from infinipot.reading.sampling import Generation

    answer = reader.fork().generate(subject.text(1), Generation(new_tokens), final=True)
    moments = [time.perf_counter() for _ in answer]
    return 1000 * statistics.median([b - a for a, b in pairwise(moments)][SKIP:])


def documents(setting: Any, bits: str) -> Iterator[dict[str, Any]]:
    """A step of 64 documents, as a share of what moving weights and pots takes at copy speed."""
    from infinipot.reading.answer import answer_all
    from infinipot.reading.sampling import Generation
    from speed.ceilings import ceilings

    subject, count = setting.subject(), 64 if setting.device == "cuda" else 2
    first = filled(subject, setting.recipe(pot_bits=int(bits)), 100)
    prompts = [subject.text(1, seed=n) for n in range(count)]

    def step(new_tokens: int) -> float:
        readers, moments = [first.fork() for _ in range(count)], []
        for index, _token in answer_all(readers, prompts, Generation(new_tokens)):
            if index == count - 1:
                moments.append(time.perf_counter())
        return statistics.median([b - a for a, b in pairwise(moments)][SKIP:])

    step(16)
    yield {}
    rounds = [step(48) for _ in range(3)]
    layer, fill = first.pot.pot_layers[0], first.pot.fill + 24
    entry = layer.keys[0, :, 0].nbytes + layer.values[0, :, 0].nbytes + 8 * layer.keys.shape[1]
    embedding = subject.bare.get_input_embeddings().weight
    moved = subject.weight_bytes - embedding.nbytes + count * len(first.pot.pot_layers) * fill * entry
    copy = ceilings(subject.device, subject.dtype)["copy_gb_s"]
    shares = [moved / (copy * 1e9) / one for one in rounds]
    rates = [count / one for one in rounds]
    yield {"step_ms": [1000 * one for one in rounds], "tokens_s": rates, "share_of_bound": shares}
    yield {"copy_gb_s": copy, "fill": fill}


def read(setting: Any, weights: str) -> Iterator[dict[str, Any]]:
    """A long text to its first token, twice; then memory beyond the weights."""
    from infinipot.bench.systems import Pots

    subject = setting.subject(weights if setting.device == "cuda" else "full")
    system = Pots(subject, setting.recipe())
    system.warm_up(setting.length, 16)
    subject.sweep()
    yield {}
    names = ("first_token_s", "reading_s", "decode_ms")
    rows: dict[str, list[float]] = {name: [] for name in names}
    told: dict[str, Any] = {}
    for _ in range(2):
        system.reader.clear()
        running = system.run(setting.length, 16)
        try:
            while True:
                next(running)
        except StopIteration as done:
            told = done.value
        for name in names:
            rows[name].append(told[name])
        yield {**rows, "engine": told["engine"]}
    yield {name.replace("_bytes", "_gb"): value / 1e9 for name, value in subject.peak().items()}


def part(name: str, args: argparse.Namespace) -> None:
    """Be one part: warm up, wait, and tell what is found."""
    sys.path[:0] = [
        str(HERE.parents[1] / "src"),
        str(HERE.parent),
    ]  # a borrowed machine has nothing installed
    from speed.card_parts import Setting

    kinds: dict[str, Callable[..., Iterator[dict[str, Any]]]] = {
        "decode": decode, "documents": documents, "read": read,
    }  # fmt: skip
    what, _, kind = PARTS[name][0].partition("-")
    setting = Setting(args.shape, args.device, args.length, args.length)
    if args.device != "cuda":
        kind = "8" if what == "documents" else "full"
    going = kinds[what](setting, kind)
    next(going)
    print(WARM, flush=True)
    sys.stdin.readline()
    for found in going:
        print(FOUND + json.dumps(found), flush=True)


class Part:
    """A part's process, seen from outside."""

    def __init__(self, name: str, args: argparse.Namespace, log: TextIO) -> None:
        told = ["--only", name, "--out", args.out, "--shape", args.shape, "--device", args.device]
        command = [sys.executable, HERE, *told, "--length", args.length]
        self.name, self.log, self.found = name, log, dict[str, Any]()
        self.said: queue.Queue[str | None] = queue.Queue()
        self.process = subprocess.Popen(
            [str(one) for one in command], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, env={**os.environ, **PARTS[name][1]},
        )  # fmt: skip
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        for line in self.process.stdout or ():
            self.log.write(f"{self.name}: {line}")
            self.log.flush()
            if line.startswith(FOUND):
                self.found |= json.loads(line.removeprefix(FOUND))
            if line.strip() == WARM:
                self.said.put(WARM)
        self.said.put(None)

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


def main() -> int:
    began = time.perf_counter()
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True, help="folder of the two files")
    parser.add_argument("--parts", default=",".join(PARTS), help="with commas between, in this order")
    parser.add_argument("--seconds", type=float, default=118, help="after which whatever runs is ended")
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
            for what, value in one.found.items():
                print(f"{one.name:<15} {what:<30} {value}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
