"""Every grid of the paper's tables, for one or several models, within a given number of minutes.

    python benchmarks/grids.py --models qwen2.5-coder-1.5b,smollm2,gemma-3-270m --dtype bfloat16 \
        --longbench DIR --essays DIR --side-by-side 6 --minutes 9 --out grids --pack grids.tar.xz

A cell is what `infinipot eval` would run with the same words, on the half `report` of LongBench that no
setting was chosen on; `plans.py` has their order, and what each `--plan` is, of which one chooses defaults.
Each worker loads a model once and takes one part after the other, the most wanted first; models follow one
another. What two cells do alike is done once (`alike.py`): such a row names the other cell, `same_as`.

Rows are kept as they come, under OUT/MODEL/parts, and the same command, given again and again, goes on where
it ended until nothing is left. Every minute it says how many rows there are and where the time went. At the
end the parts of each grid are gathered into OUT/MODEL/GRID, a run's folder that `infinipot report` and
`beside.py` read, and packed. `seconds` in the rows are of a busy card.
"""

from __future__ import annotations

import argparse
import multiprocessing as mp
import tarfile
import time
import traceback
from collections.abc import Iterator, Sequence
from copy import copy
from functools import partial
from math import inf
from pathlib import Path
from typing import Any

import candidates
import costs
from alike import Known, Sharing
from infinipot.engine import open_engine
from infinipot.errors import InfiniPotError
from infinipot.eval.evaluate import Evaluation, evaluate
from infinipot.eval.folder import MANIFEST, ROWS, Row, key, opened, read_manifest, read_rows
from infinipot.eval.results import summary
from infinipot.eval.tasks.task import PARTS, REPORT
from plans import Part, chosen

BATCH = 16  # answers at once: a step of sixteen takes little longer than one of a single answer
MINUTE = 60.0


def worker(args: argparse.Namespace, turn: Any, until: float) -> None:
    """Take one part after the other until none is left or the time is over."""
    opened = partial(open_engine, args.model, args.device, args.dtype, fused=True, weights=args.weights)
    candidates.register()
    todo, here = chosen(args), Sharing(opened)
    here.until, here.grace = until, args.grace
    while time.time() < until:
        with turn.get_lock():
            number, turn.value = turn.value, turn.value + 1
        if number >= len(todo):
            return
        try:
            told = run(todo[number], args, here)
        except InfiniPotError as error:
            told = f"error: {error}"
        except Exception:  # whatever it is, it must not end the other workers
            traceback.print_exc()
            print(f"{todo[number].place} {todo[number].name}: broke off", flush=True)
            raise SystemExit(1) from None  # a card's errors stay: whoever comes next starts afresh
        print(f"{todo[number].place} {todo[number].name}: {told}", flush=True)


def run(part: Part, args: argparse.Namespace, here: Sharing) -> str:
    """Make the rows that are not there yet; say what came out."""
    started, wanted = time.time(), part.evaluation(args)
    begin(wanted, args.out / part.place)
    here.rows, here.longest, here.share = min(part.rows or inf, args.rows or inf), part.longest, part.share
    here.runner.batch, here.known = part.batch(args.batch), Known(args.out / "alike" / part.place)
    every = (other for other in chosen(args) if other.place == part.place)
    cells = (cell for other in every for cell in other.cells.cells(here.runner.engine.format))
    here.learn(wanted, cells, read_rows(args.out / part.place))
    before = step = None
    for step in evaluate(wanted, here):
        before = before or step
    cells = summary(read_rows(wanted.out))["cells"]
    means = (f"{cell['cell']} {100 * (cell['score'] or 0):.1f}" for cell in cells)
    made, took = (step.done - before.done if step and before else 0), time.time() - started
    return f"{', '.join(means)}; {step.done if step else 0} rows, {made} new, {took:.0f} s"


def begin(wanted: Evaluation, grid: Path) -> None:
    """Begin a part with those of its rows that were gathered before."""
    if (wanted.out / MANIFEST).exists() or not (grid / MANIFEST).exists():
        return
    names, known = {cell.name for cell in wanted.grid.cells()}, read_manifest(grid)
    cells = {name: cell for name, cell in known["cells"].items() if name in names}
    if cells:
        with opened(wanted.out, {**known, "cells": cells}) as folder:
            for row in read_rows(grid):
                if row.get("cell") in cells:
                    folder.append(row)


def gather(out: Path) -> Iterator[str]:
    """Put the rows of every part into its grid's folder; those that are there stay."""
    for folder in sorted((out / "parts").glob("*/*")):
        if not (folder / MANIFEST).exists():
            continue
        with opened(out / folder.parent.name, read_manifest(folder)) as grid:
            there = grid.done()
            rows = [row for row in read_rows(folder) if key(row) not in there]
            for row in rows:
                grid.append(row)
        if rows:
            yield f"{folder.parent.name}: {len(rows)} rows of {folder.name}"


def pack(out: Path, into: Path) -> None:
    """Put every model's gathered grids into one file, which unpacked at OUT can be gone on with."""
    into.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(into, "w:xz") as archive:
        for manifest in sorted(out.glob(f"*/*/{MANIFEST}")):
            for file in (manifest, manifest.with_name(ROWS)):
                if file.exists():
                    archive.add(file, str(file.relative_to(out)))


def workers(args: argparse.Namespace, until: float) -> None:
    """Run the workers; one that died is followed by another, as long as parts are left."""
    context = mp.get_context("spawn")
    turn, todo, last = context.Value("i", 0), chosen(args), Progress(args.out)
    running: list[Any] = []
    while time.time() < until and (turn.value < len(todo) or any(one.is_alive() for one in running)):
        running = [one for one in running if one.is_alive()]
        if len(running) < args.side_by_side and turn.value < len(todo):
            running.append(context.Process(target=worker, args=(args, turn, until)))
            running[-1].start()
        time.sleep(0.5)
        if time.time() - last.at >= MINUTE:
            last = last.told(len(running))
    latest = time.time() + args.grace
    for one in running:
        one.join(max(0.0, latest - time.time()))
        if one.is_alive():  # in the middle of a row; those before are on the disk
            one.terminate()
            one.join()


class Progress:
    """How far a model's parts are, to be compared with how far they were; earlier runs' rows do not count."""

    def __init__(self, out: Path, before: Progress | None = None) -> None:
        self.out, self.at = out, time.time()
        self.begun: float = before.begun if before else self.at
        self.kept: set[tuple[str, ...]] = before.kept if before else set(_rows(out, "*"))
        self.rows = self.copied = self.tokens = 0
        self.read = 0.0

    def told(self, workers: int) -> Progress:
        """Say what came since, and return how things are now."""
        now = Progress(self.out, self)
        for name, row in _rows(self.out / "parts", "*/*").items():
            if name not in self.kept:
                now._count(row)
        minutes, made = (now.at - self.at) / MINUTE, now.rows - now.copied - self.rows + self.copied
        print(
            f"{self.out.name}, minute {(now.at - self.begun) / MINUTE:.0f}: {now.rows} rows, {now.copied} of "
            f"them copies; {made / minutes:.0f} made a minute by {workers} workers, "
            f"{(now.tokens - self.tokens) / 60 / minutes / 1000:.0f}K tokens/s; a worker read for "
            f"{(now.read - self.read) / max(workers, 1):.0f} s",
            flush=True,
        )
        return now

    def _count(self, row: dict[str, Any]) -> None:
        self.rows += 1
        if "same_as" in row:
            self.copied += 1
        elif "seconds" in row:
            self.tokens, self.read = self.tokens + row["tokens_read"], self.read + row["seconds"]["read"]


def _rows(out: Path, folders: str) -> dict[tuple[str, ...], Row]:
    """Return the rows of some grids, or of their parts, each once."""
    found = sorted(manifest.parent for manifest in out.glob(f"{folders}/{MANIFEST}"))
    grid = -1 if folders == "*" else -2
    return {(folder.parts[grid], *key(row)): row for folder in found for row in read_rows(folder)}


def left(args: argparse.Namespace) -> tuple[int, int]:
    """Return how many parts have no row yet, and how many there are."""
    every = [args.out / "parts" / part.place / part.name for part in chosen(args)]
    return sum(not (folder / MANIFEST).exists() for folder in every), len(every)


def options() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--longbench", type=Path, required=True, help="folder with LongBench's .jsonl files")
    parser.add_argument("--essays", type=Path, required=True, help="folder with essays, .txt")
    parser.add_argument("--facts", type=Path, help="folder with facts, .jsonl; none are planted without it")
    parser.add_argument("--books", type=Path, help="folder with the books they are planted in, .txt")
    parser.add_argument("--plan", default="paper", help="of plans.py; several with commas between them")
    parser.add_argument("--grids", help="only these, with commas between them")
    parser.add_argument("--rows", type=int, help="of each part of LongBench, at most, drawn by a hash")
    parser.add_argument("--part", default=REPORT, choices=PARTS, help="half of longbench's and *-short's")
    parser.add_argument("--models", default="qwen2.5-coder-1.5b", help="one after the other")
    parser.add_argument("--weights", default="full", help="how weights are held, as in `infinipot eval`")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--batch", type=int, default=BATCH, help="LongBench's rows that are answered at once")
    parser.add_argument("--side-by-side", type=int, default=1, help="workers, each with a model of its own")
    parser.add_argument("--minutes", type=float, default=60 * 24, help="begin no row later")
    parser.add_argument("--grace", type=float, default=40, help="seconds for the rows that were begun")
    parser.add_argument("--estimate", action="store_true", help="only say what is left to do")
    parser.add_argument("--pack", type=Path, help="file for all gathered rows, .tar.xz")
    parser.add_argument("--out", type=Path, required=True)
    return parser


def main(words: Sequence[str] | None = None) -> None:
    """Measure as long as there is time, then gather and pack."""
    args = options().parse_args(words)
    candidates.register()
    until = time.time() + MINUTE * args.minutes
    for model in args.models.split(","):
        mine = copy(args)
        mine.model, mine.out = model, args.out / Path(model).name.removesuffix(".gguf")
        if args.estimate:
            costs.told(mine)
            continue
        if time.time() < until:
            workers(mine, until)
        for line in gather(mine.out):
            print(f"{model}: {line}")
        untouched, every = left(mine)
        print(f"{model}: {every - untouched} of {every} parts begun or done", flush=True)
    if args.pack:
        pack(args.out, args.pack)


if __name__ == "__main__":
    main()
