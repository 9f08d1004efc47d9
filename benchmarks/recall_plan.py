"""Recall measured by several processes on one card: the most wanted first, as long as there is time.

    python benchmarks/recall_plan.py --data DIR --model MODEL --dtype bfloat16 --workers 8 --minutes 9 \
        --out build/recall --pack recall.tar.xz

DIR is as for `recall.py`. Every worker loads the model and takes the next step that no other has taken. Steps
are parts of `recall.py` and texts of `judging.py`; their rows are kept under OUT as they come, and the same
command goes on where it ended. PACK holds all of OUT, and is written anew every minute.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import judging
import recall
from infinipot.engine import Engine, open_engine
from infinipot.errors import InfiniPotError
from infinipot.eval.folder import read_rows
from infinipot.eval.results import summary
from infinipot.eval.tasks.task import REPORT, TUNE
from infinipot.recall import passages, search
from recall import Part

TEXTS = ("paraphrase-report-128k", "paraphrase-tune-128k", "statements-128k")
TEXTS += ("paraphrase-report-16k", "paraphrase-tune-16k", "statements-16k")
PASSAGES, POT = (("passages", "1k", "", "general", "0"),), (("infinipot", "1k", "", "general", "0"),)
JUDGED = (("infinipot", "1k", "32", "general", "0"),)
JUDGED_PASSAGES = (("passages", "1k", "32", "general", "0"),)
MORE = (("infinipot", "2k", "", "general", "0"),)
Step = Callable[[Engine, argparse.Namespace], Any]


def steps(args: argparse.Namespace) -> dict[str, Step]:
    """Everything that is measured, by name, the most wanted first."""
    found: dict[str, Step] = {f"judging-{name}": _judging(name) for name in TEXTS}
    found["resident"] = _resident
    for part in parts(args):
        found[part.name] = _part(part)
    return {name: step for name, step in found.items() if any(one in name for one in args.only.split(","))}


def parts(args: argparse.Namespace) -> Iterator[Part]:
    """The parts: today's code on report halves, and what is still to be chosen on both."""
    data = args.data
    facts = {"data": data / "facts", "hay": str(data / "books"), "part": REPORT}
    many, few = {"texts": 2, "planted": 25}, {"texts": 1, "planted": 3, "each": 1}
    needles = {"hay": str(data / "essays"), "trials": 1, "depths": "0.1,0.5,0.9"}
    locomo = Part("locomo", "locomo", {"data": data / "locomo"}, POT)
    longbench = {"data": data / "longbench", "tasks": recall.QA}
    qa = Part("longbench", "longbench", longbench, POT, longer=args.capacity)

    def both(
        name: str, cells: Any, aside: str = "", halves: tuple[str, ...] = (TUNE, REPORT)
    ) -> Iterator[Part]:
        for part in halves:
            for task in (locomo, qa):
                named = f"{task.name}-{part}-{name}"
                yield replace(task, name=named, cells=cells, half=part, aside=aside)

    yield Part("facts-1m", "facts", {**facts, "lengths": "1m", **many}, (*PASSAGES, *POT))
    yield Part("essays-1m", "needle", {**needles, "lengths": "1m"}, POT)
    yield from both("passages", PASSAGES)
    yield from both("eighth", POT)
    yield from both("sure", POT, "sure")
    yield replace(qa, name="longbench-report-known", half=REPORT, cells=(("infinipot", "0", "", "question"),))
    yield Part("again-1m", "facts", {**facts, "lengths": "1m", **few}, (("infinipot", "all"),))
    yield Part("essays", "needle", {**needles, "lengths": "4k,16k,64k,128k"}, POT)
    yield from both("passages-judged", JUDGED_PASSAGES)
    yield from both("sure-judged", JUDGED, "sure")
    yield Part("facts-128k", "facts", {**facts, "lengths": "128k", **many}, (*PASSAGES, *POT))
    yield Part("facts-16k", "facts", {**facts, "lengths": "16k", "texts": 5}, (*PASSAGES, *POT))
    yield from both("own", POT, "own")
    yield from both("old-passages", PASSAGES, OLD, (TUNE,))
    yield from both("2k", MORE, "", (TUNE,))
    yield from both("judged", JUDGED, "", (TUNE,))
    yield from both("old", POT, OLD, (TUNE,))


OLD = "old"  # not of `recall.ASIDES`: passages as they were cut and chosen before


@contextmanager
def _as_before() -> Iterator[None]:
    """Cut passages of up to 1,200 characters, weigh each alone, stop at the first that does not fit."""
    now = passages.LEAST, passages.MOST, search.BESIDE, search.MISSES
    passages.LEAST, passages.MOST, search.BESIDE, search.MISSES = 400, 1200, 0.0, 1
    try:
        yield
    finally:
        passages.LEAST, passages.MOST, search.BESIDE, search.MISSES = now


def _part(part: Part) -> Step:
    def step(engine: Engine, args: argparse.Namespace) -> None:
        if part.aside == OLD:
            with _as_before():
                recall.run(replace(part, aside=""), engine, args, args.ends)
        else:
            recall.run(part, engine, args, args.ends)

    return step


def _judging(name: str) -> Step:
    def step(engine: Engine, args: argparse.Namespace) -> None:
        judging.measure(name, engine, argparse.Namespace(**{**vars(args), "out": args.out / "judging"}))

    return step


def _resident(engine: Engine, args: argparse.Namespace) -> None:
    most = 1_050_000 if args.most is None else 12_000  # tokens of the long text; a try has fewer
    found = recall.resident(engine, argparse.Namespace(**{**vars(args), "most": most}))
    (args.out / "resident.json").write_text(json.dumps(found, indent=1) + "\n", "utf-8")


def work(args: argparse.Namespace) -> None:
    """Take one step after the other that no other worker has taken."""
    engine = open_engine(args.model, args.device, args.dtype)
    for name, step in steps(args).items():
        if time.monotonic() > args.ends or not _taken(args.out / "taken" / name):
            continue
        started = time.monotonic()
        try:
            step(engine, args)
        except InfiniPotError as error:
            print(f"{name}: {error}", flush=True)
        print(f"  {name} after {time.monotonic() - started:.0f} s", flush=True)


def _taken(path: Path) -> bool:
    """Take a step, if no other worker has."""
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


def lead(args: argparse.Namespace) -> None:
    """Start the workers, pack what they write, and end them when time is up."""
    (args.out / "taken").mkdir(parents=True, exist_ok=True)
    for claim in (args.out / "taken").iterdir():  # of an earlier run: rows say what is done
        claim.unlink()
    command, running = [sys.executable, __file__, *sys.argv[1:], "--worker"], []
    for number in range(args.workers):
        with (args.out / f"worker-{number}.log").open("a", encoding="utf-8") as log:
            running.append(subprocess.Popen(command, stdout=log, stderr=log))
    packed = time.monotonic()
    while any(one.poll() is None for one in running) and time.monotonic() < args.ends + 25:
        time.sleep(1)
        if time.monotonic() > packed + 60:
            pack(args)
            packed = time.monotonic()
    for one in running:
        one.kill()
        one.wait()
    pack(args)
    print(table(args))


def pack(args: argparse.Namespace) -> None:
    """Write everything to one file."""
    if args.pack:
        with tarfile.open(args.pack.with_suffix(".part"), "w:xz", preset=1) as tar:
            tar.add(args.out, args.out.name)
        args.pack.with_suffix(".part").replace(args.pack)


def table(args: argparse.Namespace) -> str:
    """A line a cell: the mean in percent, and the rows."""
    lines = []
    for part in parts(args):
        if (args.out / part.name).is_dir() and (rows := list(read_rows(args.out / part.name))):
            for cell in summary(rows)["cells"]:
                score = "-" if cell["score"] is None else f"{100 * cell['score']:5.1f}"
                lines.append(f"{part.name:34} {cell['cell'][:40]:40} {score} {cell['rows']:4}")
    resident = args.out / "resident.json"
    lines += [resident.read_text("utf-8")] if resident.exists() else []
    return "\n".join((*lines, judging.table(args.out / "judging")))


def main() -> None:
    """Lead, or work for the one who leads."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--model", default="qwen2.5-coder-1.5b")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--capacity", type=int, default=4096)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--minutes", type=float, default=9)
    parser.add_argument("--only", default="", help="what a step's name has in it, commas between")
    parser.add_argument("--most", type=int, help="questions of a text of `judging.py`, for a try")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--pack", type=Path, help="a .tar.xz file")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    args.ends = time.monotonic() + 60 * args.minutes
    if args.worker:
        work(args)
    else:
        lead(args)


if __name__ == "__main__":
    main()
