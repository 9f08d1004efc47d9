"""What recording costs: reading speed without the hook, with it and off, and on; and the memory of on.

    git worktree add ../before COMMIT_BEFORE_RECORDING
    python benchmarks/recording.py --without ../before --rounds 12 --out recording.json

Each variant is a process of its own that loads the model once and then waits; rounds go through the
variants one after the other (`rounds.py`). The figure is the median over the rounds of the ratio within a
round.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parent))
from rounds import Worker, closing, serve, spread, turned

HERE = Path(__file__).resolve()
TEXT = "The keeper of the lighthouse wrote down every ship that passed, {}, and what the weather was. "


def work(args: argparse.Namespace) -> None:
    """Read a text whenever that is asked for; say how long it took."""
    from infinipot import Recipe, open_engine

    engine = open_engine(args.model, args.device)
    text = "".join(TEXT.format(n) for n in range(args.tokens // 20))
    recipe = Recipe.named(capacity=args.capacity)

    def read() -> dict[str, Any]:
        reader, recording = engine.reader(recipe), None
        if args.worker == "on":
            from infinipot.reading.recording import Recording

            reader.session.recording = recording = Recording()
        start = time.perf_counter()
        done = reader.read(text)
        seconds = time.perf_counter() - start
        memory = recording.nbytes if recording else 0
        return {"tokens": done.tokens_read, "cycles": done.cycles, "seconds": seconds, "bytes": memory}

    serve({}, {"read": read})


def summary(rounds: list[dict[str, dict]]) -> dict:
    last = rounds[-1]
    found: dict = {"tokens": last["off"]["tokens"], "cycles": last["off"]["cycles"]}
    for name in last:
        speeds = [one[name]["tokens"] / one[name]["seconds"] for one in rounds]
        found[name] = {"tokens_per_second": round(statistics.median(speeds), 2)}
    base = "without" if "without" in last else "off"
    for name in (name for name in last if name != base):
        ratios = [one[base]["seconds"] / one[name]["seconds"] for one in rounds]
        found[name][f"speed_against_{base}"] = spread(ratios)
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
    sources = {"off": HERE.parents[1], "on": HERE.parents[1]}
    if args.without:
        sources = {"without": args.without, **sources}
    workers = {name: Worker(HERE, source, ["--worker", name, *words]) for name, source in sources.items()}
    rounds = []
    with closing(workers):
        for number in range(-1, args.rounds):
            one = {name: workers[name].ask(do="read") for name in turned(list(workers), number)}
            if number >= 0:  # the first warms up
                rounds.append(one)
                print(json.dumps({name: round(one[name]["seconds"], 4) for name in workers}), flush=True)
    found = {"model": args.model, "capacity": args.capacity, **summary(rounds), "rounds": rounds}
    print(json.dumps({name: value for name, value in found.items() if name != "rounds"}, indent=1))
    if args.out:
        args.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
