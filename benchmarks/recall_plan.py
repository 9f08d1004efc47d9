"""Recall measured by several processes on one card: the most wanted first, as long as there is time.

    python benchmarks/recall_plan.py --data DIR --model MODEL --dtype bfloat16 --workers 8 --minutes 5 \
        --out build/recall --pack recall.tar.xz

DIR is as for `recall.py`. Every worker loads the model and takes the next step that no other has taken. Steps
are texts of `ways.py` and `judging.py`, and reading a million tokens again (`recall.py`); their rows are kept
under OUT as they come, and the same command goes on where it ended. PACK holds all of OUT, and is written
anew every minute. With `--model toy` the plan itself is tried, by a tiny random model.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tarfile
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import judging
import recall
import ways
from infinipot.engine import Engine, open_engine
from infinipot.errors import InfiniPotError
from infinipot.eval.folder import read_rows
from infinipot.eval.results import summary
from infinipot.eval.tasks.task import REPORT, TUNE
from infinipot.testing.model import ToyModel
from infinipot.testing.tokenizer import ByteTokenizer
from recall import Part

AGAIN = "again-1m"  # all of a million tokens is read again for each question
SEVERAL = 40  # questions of a conversation that something is chosen on
TALKS = 5
KINDS = ("judging", "ways", "asked")  # of rows, a folder each
GRACE = 4  # seconds after the end, for what is being written
Step = Callable[[Engine, argparse.Namespace], Any]


def names() -> Iterator[str]:
    """Everything that is measured, the most wanted first; what takes long begins early."""
    million = (f"essays-all-1m-{depth}" for depth in (0.5, 0.1, 0.9))
    yield from (AGAIN, "facts-report-1m-0", "facts-report-1m-1")
    yield from ("paraphrase-report-128k", "statements-128k", "paraphrase-tune-128k")
    for number in range(TALKS):
        yield from (f"locomo-{half}-{number}" for half in (TUNE, REPORT))
        if number < ways.PARTS:
            yield from (f"longbench-{half}-{number}" for half in (TUNE, REPORT))
        yield from (name for name in (next(million, ""),) if name)
    yield from ("paraphrase-report-16k", "statements-16k", "paraphrase-tune-16k")
    yield from (f"essays-all-{size}-0.1+0.5+0.9" for size in ("128k", "64k", "16k", "4k"))
    yield from (f"facts-report-128k-{number}" for number in (0, 1))
    yield from (f"facts-report-16k-{number}" for number in range(5))
    yield from ("facts-tune-128k-0", *(f"facts-tune-16k-{number}" for number in range(3)))


def steps(args: argparse.Namespace) -> dict[str, Step]:
    """The steps by name, those that are asked for."""
    wanted, asked = args.only.split(","), set(names()) - ({AGAIN} if args.as_asked else set())
    return {name: _step(name) for name in names() if name in asked and any(one in name for one in wanted)}


def _step(name: str) -> Step:
    if name == AGAIN:
        return _again
    measured = judging if name.startswith(("paraphrase", "statements")) else ways
    most = {"most": SEVERAL} if name.startswith(f"locomo-{TUNE}") else {}

    def step(engine: Engine, args: argparse.Namespace) -> None:
        limited = most if args.most is None else {}
        folder = "asked" if args.as_asked else cast(str, measured.__name__)
        own = {**vars(args), "out": args.out / folder, **limited}
        measured.measure(name, engine, argparse.Namespace(**own))

    return step


def _again(engine: Engine, args: argparse.Namespace) -> None:
    facts = {"data": args.data / "facts", "hay": str(args.data / "books"), "part": REPORT}
    few = {"lengths": "1m" if args.most is None else "16k", "texts": 1, "planted": 3, "each": 1}
    part = Part(AGAIN, "facts", {**facts, **few}, (("infinipot", "all"),))
    recall.run(part, engine, argparse.Namespace(**{**vars(args), "batch": 1}), args.ends)


def toy() -> Engine:
    """A tiny random model: its answers are nonsense, and come at once."""
    return Engine("toy", "plain", cast(Any, ToyModel()), cast(Any, ByteTokenizer()))


def work(args: argparse.Namespace) -> None:
    """Take one step after the other that no other worker has taken."""
    engine = toy() if args.model == "toy" else open_engine(args.model, args.device, args.dtype)
    print(f"loaded {time.monotonic() - args.began:.0f} s after the start", flush=True)
    for name, step in steps(args).items():
        if time.monotonic() > args.ends or not _taken(args.out / "taken" / name):
            continue
        started = time.monotonic()
        try:
            step(engine, args)
        except InfiniPotError as error:
            print(f"{name}: {error}", flush=True)
        except Exception:  # the other steps may still go well
            traceback.print_exc()
        print(f"  {name} took {time.monotonic() - started:.0f} s", flush=True)


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
    command, running = [sys.executable, __file__, *sys.argv[1:], "--began", str(args.began)], []
    threads = str(max(1, (os.cpu_count() or 1) // args.workers))  # or workers would wait for one another
    for number in range(args.workers):
        with (args.out / f"worker-{number}.log").open("a", encoding="utf-8") as log:
            own = {**os.environ, "OMP_NUM_THREADS": threads, "TOKENIZERS_PARALLELISM": "false"}
            running.append(subprocess.Popen(command, stdout=log, stderr=log, env=own))
    packed = time.monotonic()
    while any(one.poll() is None for one in running) and time.monotonic() < args.ends + GRACE:
        time.sleep(0.5)
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
    """A line a set: the means in percent, and the questions; and how each worker ended."""
    logs = sorted(args.out.glob("worker-*.log"))
    lines = [f"{log.stem}: {(log.read_text('utf-8').strip().splitlines() or ['-'])[-1]}" for log in logs]
    if (args.out / AGAIN).is_dir():
        for cell in summary(list(read_rows(args.out / AGAIN)))["cells"]:
            lines.append(f"{AGAIN:24} {cell['cell']}: {cell['score']}, {cell['rows']} questions")
    return "\n".join((*lines, *(ways.table(args.out / kind) for kind in KINDS)))


def main() -> None:
    """Lead, or work for the one who leads."""
    parser = ways.parser(__doc__)
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--only", default="", help="what a step's name has in it, commas between")
    parser.add_argument("--pack", type=Path, help="a .tar.xz file")
    parser.add_argument("--began", type=float, help=argparse.SUPPRESS)  # a worker is told when all began
    args = parser.parse_args()
    leads, args.began = args.began is None, args.began or time.monotonic()
    args.ends = args.began + 60 * args.minutes
    if leads:
        lead(args)
    else:
        work(args)


if __name__ == "__main__":
    main()
