"""What recording costs: reading speed without the hook, with it and off, and on; and the memory of on.

    git worktree add ../before COMMIT_BEFORE_RECORDING
    python benchmarks/recording.py --without ../before --rounds 12 --out recording.json

Each variant is a process of its own that loads the model once and then waits; rounds go through the
variants one after the other, so that only one works at a time and a slow minute hits all of them. The
figure is the median over the rounds of the ratio within a round.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parents[1]
TEXT = "The keeper of the lighthouse wrote down every ship that passed, {}, and what the weather was. "


def work(args: argparse.Namespace) -> None:
    """Read a text whenever a line comes in; say how long it took."""
    from infinipot import Recipe, open_engine

    engine = open_engine(args.model, args.device)
    text = "".join(TEXT.format(n) for n in range(args.tokens // 20))
    recipe = Recipe.named(capacity=args.capacity)
    print(json.dumps({"ready": True}), flush=True)
    for _ in sys.stdin:
        reader, memory = engine.reader(recipe), 0
        if args.worker == "on":
            from infinipot.reading.recording import Recording

            reader.recording = Recording()
        start = time.perf_counter()
        read = reader.read(text)
        seconds = time.perf_counter() - start
        if args.worker == "on":
            memory = reader.recording.nbytes
        found = {"tokens": read.tokens_read, "cycles": read.cycles, "seconds": seconds, "bytes": memory}
        print(json.dumps(found), flush=True)


class Worker:
    """A process that reads on demand."""

    def __init__(self, name: str, source: Path, words: list[str]) -> None:
        env = {**os.environ, "PYTHONPATH": str(source / "src")}
        command = [sys.executable, str(Path(__file__).resolve()), "--worker", name, *words]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=env)
        self.said()

    def said(self) -> dict:
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"a worker ended: {self.process.wait()}")
        return json.loads(line)

    def read(self) -> dict:
        self.process.stdin.write("go\n")
        self.process.stdin.flush()
        return self.said()

    def close(self) -> None:
        self.process.stdin.close()
        self.process.wait()


def compare(workers: dict[str, Worker], rounds: int) -> list[dict[str, dict]]:
    """Rounds of one reading each; the order turns, so that no variant is always first."""
    names = list(workers)
    found = []
    for number in range(-1, rounds):
        turned = names[number % len(names) :] + names[: number % len(names)]
        one = {name: workers[name].read() for name in turned}
        if number >= 0:  # the first warms up
            found.append(one)
            print(json.dumps({name: round(one[name]["seconds"], 4) for name in names}), flush=True)
    return found


def summary(rounds: list[dict[str, dict]]) -> dict:
    last = rounds[-1]
    found: dict = {"tokens": last["off"]["tokens"], "cycles": last["off"]["cycles"]}
    for name in last:
        speeds = [one[name]["tokens"] / one[name]["seconds"] for one in rounds]
        found[name] = {"tokens_per_second": round(statistics.median(speeds), 2)}
    base = "without" if "without" in last else "off"
    for name in (name for name in last if name != base):
        ratios = [one[base]["seconds"] / one[name]["seconds"] for one in rounds]
        spread = [round(value, 4) for value in (min(ratios), statistics.median(ratios), max(ratios))]
        found[name][f"speed_against_{base}"] = dict(zip(("least", "median", "most"), spread, strict=True))
    found["on"]["recording_bytes"] = last["on"]["bytes"]
    found["on"]["recording_bytes_per_token"] = round(last["on"]["bytes"] / last["on"]["tokens"], 1)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--capacity", type=int, default=2048)
    parser.add_argument("--tokens", type=int, default=8192)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--without", type=Path, help="a checkout from before there was a hook")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        work(args)
        return
    words = [f"--{name}={getattr(args, name)}" for name in ("model", "device", "capacity", "tokens")]
    sources = {"off": HERE, "on": HERE}
    if args.without:
        sources = {"without": args.without.resolve(), **sources}
    workers = {name: Worker(name, source, words) for name, source in sources.items()}
    try:
        rounds = compare(workers, args.rounds)
    finally:
        for worker in workers.values():
            worker.close()
    found = {"model": args.model, "capacity": args.capacity, **summary(rounds), "rounds": rounds}
    print(json.dumps({name: value for name, value in found.items() if name != "rounds"}, indent=1))
    if args.out:
        args.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
