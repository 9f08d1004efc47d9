"""Reading and decoding on a CPU beside a busy process, as shares of the quiet speed, in turns.

    python benchmarks/busy.py --model smollm2 --out docs/results/busy-cpu.json

The busy process computes without end and waits for nothing. Quiet, all threads compute, as if a person had
named their number; beside the busy process as many as a reader chooses by itself (`busy`), and all (`held`).
On as many threads as there are cores half of the quiet speed is the most a fair system leaves where every
step waits for its slowest thread.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import torch

from infinipot.engine import Engine, open_engine
from infinipot.hf.speed.threads import LOOK, follow, use_threads
from infinipot.reading.sampling import Generation
from infinipot.recipes.recipe import Recipe
from rounds import spread
from speed.cycle_parts import snapshot, timed, write

CACHED, TOKENS, SPARE = 2048, 33, 256
SETTINGS = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")
STATES = {"quiet": False, "busy": True, "held": False}  # whether threads follow what other programs leave


@contextmanager
def busy(processes: int) -> Iterator[None]:
    """Run processes beside this one that never wait."""
    started = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(processes)]
    try:
        time.sleep(0.2 if processes else 0)
        yield
    finally:
        for one in started:
            one.kill()
            one.wait()


def settle(follows: bool, count: int) -> None:
    """Let the threads be those of a state that has lasted for a while."""
    use_threads(count, torch.device("cpu"))
    if follows:
        use_threads(None, torch.device("cpu"))
    for _ in range(3):
        time.sleep(LOOK)
        follow()


def ways(engine: Engine, new: int) -> dict[str, Callable[[], float]]:
    """Return what is timed: a chunk on cached tokens, and a token of an answer."""
    source = torch.Generator().manual_seed(0)
    ids = torch.randint(100, engine.model.vocabulary - 100, (CACHED + new,), generator=source).tolist()
    reader = engine.reader(Recipe.named(capacity=CACHED + new + SPARE, keep=CACHED, format=engine.format))
    write(reader, ids[:CACHED], distil=False)
    back = snapshot(reader)

    def reading() -> float:
        back()
        return timed(reader, lambda: write(reader, ids[CACHED:], distil=False))

    def decoding() -> float:
        back()
        moments = [time.perf_counter() for _ in reader.generate([1], Generation(TOKENS), final=True)]
        return statistics.median(after - before for before, after in pairwise(moments))

    return {"reading": reading, "decoding": decoding}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--tokens", type=int, default=512, help="of a chunk")
    parser.add_argument("--processes", type=int, default=1, help="busy ones")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    measured = ways(open_engine(args.model, "cpu", threads=args.threads), args.tokens)
    seconds: dict[str, dict[str, list[float]]] = {name: {one: [] for one in STATES} for name in measured}
    chosen: list[int] = []
    for turn in range(args.rounds + 1):
        for name, way in measured.items():
            for state, follows in STATES.items():
                with busy(0 if state == "quiet" else args.processes):
                    settle(follows, args.threads)
                    took = way()
                if turn:  # the first round warms up
                    seconds[name][state].append(round(took, 4))
                    chosen += [torch.get_num_threads()] if follows else []
    shares = {
        name: {
            state: spread([a / b for a, b in zip(one["quiet"], one[state], strict=True)])
            for state in list(STATES)[1:]
        }
        for name, one in seconds.items()
    }
    told = {
        "model": args.model,
        "cores": os.cpu_count(),
        "threads": args.threads,
        "chosen_threads": chosen,
        "busy_processes": args.processes,
        "new_tokens": args.tokens,
        "settings": {name: os.environ.get(name) for name in SETTINGS},
        "seconds": seconds,
        "share_of_the_quiet_speed": shares,
    }
    print(json.dumps(told["share_of_the_quiet_speed"]), told["settings"])
    if args.out:
        args.out.write_text(json.dumps(told, indent=1) + "\n")


if __name__ == "__main__":
    main()
