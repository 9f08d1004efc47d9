"""Before and after in one run: the same measurement from two checkouts, in turns; is the result the same?

    python benchmarks/compare.py --before ../before --rounds 9 --out compare.json -- --model smollm2
    python benchmarks/compare.py --before ../before --stay --out a.json -- --random llama-3-8b --tokens 131072

After `--` come the options of `measured.py`, the same for both. Every round starts a fresh process for each
checkout, warms it up and measures once; with --stay both load their model once and rounds alternate between
them, which needs the memory of both and less time. Figures are medians over the rounds of each round's own
ratio, with the least and the most. First, on fixed seeds, logits, kept slots and answers are compared bit by
bit, and a pot that the checkout before saved is loaded by the one after.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from rounds import Worker, closing, ratios, turned

HERE = Path(__file__).resolve().parent
SCRIPT = HERE / "measured.py"
BEFORE, AFTER = "before", "after"
VALUES = {
    "tokens_s": "reading, tokens/s",
    "decode_ms": "decoding, ms a token",
    "first_token_s": "first token, s",
}


def started(checkout: Path, words: list[str]) -> Worker:
    """Start a worker, and make sure that its sources are the checkout's."""
    worker = Worker(SCRIPT, checkout, words)
    source = Path(worker.ready.pop("source"))
    if not source.is_relative_to(checkout.resolve()):
        worker.close()
        raise SystemExit(f"infinipot came from {source}, not from {checkout}: another one hides it")
    return worker


def commit(checkout: Path) -> str:
    """Return the checkout's commit, with a + where files were changed; empty where git cannot tell."""

    def git(*words: str) -> str:
        command = ["git", "-C", str(checkout), *words]
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()

    if not (shutil.which("git") and (checkout / ".git").exists()):
        return ""
    return git("rev-parse", "--short", "HEAD") + ("+" if git("status", "--porcelain", "--", "src") else "")


def witnessed(workers: dict[str, Worker], folder: Path) -> dict[str, Any]:
    """Compare what both checkouts compute on fixed seeds."""
    told = workers[BEFORE].ask(do="witness", folder=str(folder / BEFORE))["witness"]
    after = workers[AFTER].ask(do="witness", folder=str(folder / AFTER), other=str(folder / BEFORE))[
        "witness"
    ]
    result = {}
    for number, name in enumerate(told):
        one, other = (load_file(folder / side / f"{number}.safetensors") for side in (BEFORE, AFTER))
        result[name] = {
            "cycles": after[name]["cycles"],
            **{what: "identical" if torch.equal(one[what], other[what]) else "DIFFERENT" for what in one},
            "logits_largest_difference": float((one["logits"] - other["logits"]).abs().max()),
            "saved_pot": after[name]["pot"],
        }
    return result


def fresh(checkouts: dict[str, Path], words: list[str], rounds: int, seen: dict[str, Any]) -> Iterator[dict]:
    """Yield rounds, each with a process of its own for each checkout."""
    for number in range(rounds):
        one = {}
        for name in turned(list(checkouts), number):
            worker = started(checkouts[name], words)
            with closing({name: worker}):
                seen[name] = worker.ready
                one[name] = {**worker.ask(do="warm_up"), **worker.ask(do="speed")}
        yield one


def staying(workers: dict[str, Worker], rounds: int) -> Iterator[dict]:
    """Yield rounds of workers that stay; the first round is not counted."""
    for worker in workers.values():
        worker.ask(do="warm_up")
    for number in range(-1, rounds):
        one = {name: workers[name].ask(do="speed") for name in turned(list(workers), number)}
        if number >= 0:
            yield one


def summary(rounds: list[dict]) -> dict[str, Any]:
    """Return medians of both sides, and the ratio after / before of each value."""
    found: dict[str, Any] = {}
    for value in VALUES:
        sides = {side: statistics.median(one[side][value] for one in rounds) for side in (BEFORE, AFTER)}
        found[value] = {**sides, "after_over_before": ratios(rounds, AFTER, BEFORE, value)}
    return found


def show(told: dict[str, Any]) -> None:
    for name, one in told["same"].items():
        parts = ", ".join(f"{what} {one[what]}" for what in ("logits", "slots", "answer"))
        print(f"{name}, {one['cycles']} cycles: {parts}; saved pot: {one['saved_pot']}")
    for value, words in VALUES.items():
        if value in told["speed"]:
            one = told["speed"][value]
            spread = one["after_over_before"]
            bounds = f"({spread['least']:.4f} to {spread['most']:.4f}, {len(told['rounds'])} rounds)"
            sides = f"{one[BEFORE]:.4g} before, {one[AFTER]:.4g} after"
            print(f"{words}: {sides}; after/before {spread['median']:.4f} {bounds}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--before", type=Path, required=True, help="a checkout of this repository")
    parser.add_argument("--after", type=Path, default=HERE.parent, help="another one; this one by default")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--stay", action="store_true", help="load each model once")
    parser.add_argument("--no-same", action="store_true", help="do not compare what is computed")
    parser.add_argument("--out", type=Path)
    parser.add_argument("words", nargs=argparse.REMAINDER, metavar="-- ...", help="options of measured.py")
    args = parser.parse_args()
    words = [word for word in args.words if word != "--"]
    checkouts = {BEFORE: args.before, AFTER: args.after}
    told: dict[str, Any] = {
        "command": [
            "compare.py",
            "--rounds",
            str(args.rounds),
            *(["--stay"] if args.stay else []),
            "--",
            *words,
        ],
        "commits": {name: commit(path) for name, path in checkouts.items()},
        "python": sys.version.split()[0],
        "same": {},
        "speed": {},
        "rounds": [],
    }
    seen: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        if args.stay or not args.no_same:
            workers = {name: started(path, words) for name, path in checkouts.items()}
            with closing(workers):
                seen |= {name: worker.ready for name, worker in workers.items()}
                if not args.no_same:
                    told["same"] = witnessed(workers, Path(folder))
                    show(told)
                if args.stay:
                    follow(told, staying(workers, args.rounds))
        if not args.stay:
            follow(told, fresh(checkouts, words, args.rounds, seen))
    told["machines"] = seen
    if told["rounds"]:
        told["speed"] = summary(told["rounds"])
        show({**told, "same": {}})
    if args.out:
        args.out.write_text(json.dumps(told, indent=1) + "\n")


def follow(told: dict[str, Any], rounds: Iterator[dict]) -> None:
    """Take rounds as they come, saying a line about each."""
    for one in rounds:
        told["rounds"].append(one)
        line = {
            name: f"{row['tokens_s']:,.0f} tokens/s, {row['decode_ms']:.3f} ms" for name, row in one.items()
        }
        print(f"round {len(told['rounds'])}: {line}", flush=True)


if __name__ == "__main__":
    main()
