"""Every grid of the paper's tables, for one or several models, within a given number of minutes.

    python benchmarks/grids.py --models qwen2.5-coder-1.5b,smollm2,gemma-3-270m --dtype bfloat16 \
        --longbench DIR --essays DIR --side-by-side 6 --minutes 9 --out grids

A grid is what `infinipot eval` would run with the same words, on the half `report` of LongBench that no
setting was chosen on (`--part tune` to choose some). Each worker loads a model once and takes one part of a
grid after the other, the most wanted first; models follow one another. Rows are kept as they come, under
OUT/MODEL/parts, and the same command, given again and again, goes on where it ended until nothing is left; it
says how much there is. Then the parts of each grid are gathered into OUT/MODEL/GRID, a run's folder that
`infinipot report` and `beside.py` read. `seconds` in the rows are of a busy card. With `--plan models` fewer
recipes run, on LongBench and on keys in texts up to 32K, all on one half: for what is said of further models.
"""

from __future__ import annotations

import argparse
import multiprocessing as mp
import time
import traceback
from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from infinipot.engine import open_engine
from infinipot.errors import InfiniPotError
from infinipot.eval.evaluate import Evaluation, Workers, evaluate
from infinipot.eval.folder import MANIFEST, key, opened, read_manifest, read_rows
from infinipot.eval.grid import BY_TASK, Grid
from infinipot.eval.results import summary
from infinipot.eval.tasks.task import ALL, PARTS, REPORT, make

K = 1024
STEPS = {"swa": 256, "streaming-llm": 256, "h2o": 256, "h2o-half": 256}  # token by token is too slow here
TOKENWISE = ("streaming-llm", "tova-tokenwise")  # one by one on a few rows, to show what the step costs
FEW_ROWS = 4  # of each task, for what goes token by token
WHOLE = {"full", "truncate"}  # distil nothing, so no tail either
BATCH = 8
TABLE_1 = (
    *("infinipot", "truncate", "full", "snapkv", "infinipot-paper", "streaming-llm", "tova", "sirllm"),
    *("h2o", "h2o-half", "ccd", "cap-only", "nuc-only", "no-cr-rope", "swa", "self-extend"),
)
CHUNKED = ("infinipot", "tova", "sirllm", "ccd", "cap-only", "nuc-only", "no-cr-rope")
PAPER_LENGTHS = "4k,8k,16k,32k,64k,128k,256k,1m"
SHORT = {"lengths": "4k,8k,16k,32k", "trials": 4}
FURTHER = ("infinipot", "truncate", "full", "snapkv", "infinipot-paper", "streaming-llm", "tova", "h2o-half")
ASKING = {"infinipot", "infinipot-paper"}  # those whose catalyst may hold the question


@dataclass(frozen=True)
class Part:
    """Some cells of a grid."""

    grid: str  # its name, and the folder's
    recipes: tuple[str, ...]
    catalysts: tuple[str, ...]
    capacities: tuple[int, ...] = (4 * K,)
    keeps: tuple[float, ...] = ()
    knobs: dict[str, tuple[str, ...]] = field(default_factory=dict)
    tail: str | None = None
    step: int | None = None

    @property
    def name(self) -> str:
        knobs = (f"{name}={','.join(values)}" for name, values in self.knobs.items())
        sizes = (*map(str, self.capacities), *(f"keep={share}" for share in self.keeps))
        ends = (f"tail={self.tail}",) if self.tail else ()
        steps = (f"step={self.step}",) if self.step else ()
        return "_".join([*self.recipes, *self.catalysts, *sizes, *knobs, *ends, *steps])

    @property
    def cells(self) -> Grid:
        """The recipes with every combination of their options."""
        usual = {STEPS[recipe] for recipe in self.recipes if recipe in STEPS}
        steps = tuple({self.step} if self.step else usual)
        tail = (self.tail,) if self.tail and not {*self.recipes} <= WHOLE else ()
        sizes = {"keep": self.keeps, "step": steps, "tail": tail}
        options = {name: values for name, values in (sizes | self.knobs).items() if values}
        return Grid(self.recipes, self.capacities, self.catalysts, options)

    def evaluation(self, args: argparse.Namespace) -> Evaluation:
        task, given, limit = tasks(args)[self.grid]
        parted = task == "longbench" or self.grid.endswith("-short")
        out, half = args.out / "parts" / self.grid / self.name, args.part if parted else ALL
        return Evaluation(make(task, given, args.seed), self.cells, out, args.seed, limit, part=half)


def tasks(args: argparse.Namespace) -> dict[str, tuple[str, dict[str, Any], int | None]]:
    """What is read for each grid: a task, its options, and how many rows of each of its parts."""
    essays, longbench = str(args.essays), args.longbench
    return {
        "passkey": ("passkey", {"lengths": PAPER_LENGTHS, "trials": 1}, None),
        "essays": ("needle", {"lengths": PAPER_LENGTHS, "trials": 1, "hay": essays}, None),
        "passkey-more": ("passkey", {"lengths": "4k,8k,16k,32k,64k", "trials": 4}, None),
        "essays-more": ("needle", {"lengths": "4k,8k,16k,32k,64k", "trials": 4, "hay": essays}, None),
        "passkey-short": ("passkey", SHORT, None),
        "essays-short": ("needle", {**SHORT, "hay": essays}, None),
        "longbench": ("longbench", {"data": longbench, "tasks": "all"}, args.rows),
        "longbench-tokenwise": ("longbench", {"data": longbench, "tasks": "all"}, FEW_ROWS),
    }


def parts() -> Iterator[Part]:
    """Everything the tables need, the most wanted first; `plain` distils where a text ends."""
    ours, question, both, by_task = ("infinipot",), ("question",), ("general", "question"), (BY_TASK,)
    hays, more = ("passkey", "essays"), ("passkey-more", "essays-more")
    plain = partial(Part, tail="distil")
    for recipe in TABLE_1:
        yield Part("longbench", (recipe,), by_task)
    yield from (plain("longbench", (recipe,), by_task) for recipe in CHUNKED)
    yield Part("longbench", ours, ("general",))
    for hay in hays:  # table 4
        yield from (Part(hay, ours, (catalyst,)) for catalyst in both)
    for hay in more:
        yield Part(hay, ours, both)
        yield plain(hay, ("infinipot", "cap-only"), both)
        yield from (plain(hay, (recipe,), question) for recipe in ("full", "ccd", "no-cr-rope"))
    for hay in hays:
        yield from (
            plain(hay, (recipe,), (catalyst,)) for recipe in ("infinipot", "cap-only") for catalyst in both
        )
        yield from (plain(hay, (recipe,), question) for recipe in ("ccd", "no-cr-rope"))
    yield plain("longbench", ours, ("general",))
    yield from (plain("longbench", ours, (one,), tail="raw") for one in (BY_TASK, "general"))
    yield from (plain(hay, ours, both, tail="raw") for hay in more)
    for capacity in (1 * K, 2 * K, 8 * K):  # figure 6
        yield from (
            plain("longbench", (recipe,), by_task, (capacity,)) for recipe in ("infinipot", "truncate")
        )
    for novelty in ("0", "0.25", "0.75"):  # table 3; the rest of it is in table 1
        yield plain("longbench", ours, by_task, knobs={"novelty": (novelty,)})
    for catalyst in ("general-1", "general-2", "padding", "unrelated"):  # table 2
        yield plain("longbench", ours, (catalyst,))
    # Score pooling and |C|/|M|, which the paper does not print.
    for width in ("1", "15"):
        yield plain("longbench", ours, by_task, knobs={"pool": (width,)})
    yield plain("longbench", ours, by_task, knobs={"novelty": ("0.25",), "pool": ("1",)})
    yield plain("longbench", ("cap-only",), by_task, knobs={"pool": ("1",)})
    yield from (plain(hay, ("cap-only",), both, knobs={"pool": ("1",)}) for hay in more)
    for pool in ("7", "1"):
        for share in (0.25, 0.75):
            yield plain("longbench", ours, by_task, keeps=(share,), knobs={"pool": (pool,)})
            yield from (plain(hay, ours, both, keeps=(share,), knobs={"pool": (pool,)}) for hay in more)
    yield from (plain(hay, ours, both, knobs={"pool": ("1",)}) for hay in (*more, *hays))
    for recipe in TOKENWISE:
        yield Part("longbench-tokenwise", (recipe,), by_task, step=1)
    yield Part("longbench-tokenwise", ("streaming-llm", "tova", "infinipot"), by_task)


def models() -> Iterator[Part]:
    """The same few recipes for further models, question known and unknown; again the most wanted first."""
    for recipes in (FURTHER[:3], FURTHER[3:]):
        for grid in ("longbench", "essays-short", "passkey-short"):
            known = BY_TASK if grid == "longbench" else "question"
            for recipe in recipes:
                catalysts = (known, "general") if recipe in ASKING else (known,)
                yield from (Part(grid, (recipe,), (catalyst,)) for catalyst in catalysts)


PLANS = {"paper": parts, "models": models}


def chosen(args: argparse.Namespace) -> list[Part]:
    wanted = set(args.grids.split(",")) if args.grids else set(tasks(args))
    if unknown := wanted - set(tasks(args)):
        raise SystemExit(f"unknown grid '{min(unknown)}'; use {', '.join(tasks(args))}")
    return [part for part in PLANS[args.plan]() if part.grid in wanted]


# Running ----------------------------------------------------------------------------


def worker(args: argparse.Namespace, turn: Any, until: float) -> None:
    """Take one part after the other until none is left or the time is over."""
    opened = partial(open_engine, args.model, args.device, args.dtype, fused=True, weights=args.weights)
    todo, here = chosen(args), Workers(opened)
    while time.time() < until:
        with turn.get_lock():
            number, turn.value = turn.value, turn.value + 1
        if number >= len(todo):
            return
        try:
            told = run(todo[number], args, here, until)
        except InfiniPotError as error:
            told = f"error: {error}"
        except Exception:  # whatever it is, it must not end the other workers
            traceback.print_exc()
            print(f"{todo[number].grid} {todo[number].name}: broke off", flush=True)
            raise SystemExit(1) from None  # a card's errors stay: whoever comes next starts afresh
        print(f"{todo[number].grid} {todo[number].name}: {told}", flush=True)


def run(part: Part, args: argparse.Namespace, here: Workers, until: float) -> str:
    """Make the rows that are not there yet; say what came out."""
    started, wanted = time.time(), part.evaluation(args)
    begin(wanted, args.out / part.grid)
    here.runner.batch = BATCH if part.grid.startswith("longbench") else 1  # other answers are a few tokens
    for step in evaluate(wanted, here):
        if step.done < step.total and time.time() > until:
            return f"{step.done} of {step.total} rows; run again to go on"
    cells = summary(read_rows(wanted.out))["cells"]
    means = (f"{cell['cell']} {100 * (cell['score'] or 0):.1f}" for cell in cells)
    return f"{', '.join(means)}; {step.total} rows, {time.time() - started:.0f} s"


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


def workers(args: argparse.Namespace, until: float) -> None:
    """Run the workers; one that died is followed by another, as long as parts are left."""
    context = mp.get_context("spawn")
    turn, todo = context.Value("i", 0), chosen(args)
    running: list[Any] = []
    while time.time() < until and (turn.value < len(todo) or any(one.is_alive() for one in running)):
        running = [one for one in running if one.is_alive()]
        if len(running) < args.side_by_side and turn.value < len(todo):
            running.append(context.Process(target=worker, args=(args, turn, until)))
            running[-1].start()
        time.sleep(0.5)
    for one in running:
        one.join()


def left(args: argparse.Namespace) -> tuple[int, int]:
    """Return how many parts have no row yet, and how many there are."""
    every = [args.out / "parts" / part.grid / part.name for part in chosen(args)]
    return sum(not (folder / MANIFEST).exists() for folder in every), len(every)


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--longbench", type=Path, required=True, help="folder with LongBench's .jsonl files")
    parser.add_argument("--essays", type=Path, required=True, help="folder with essays, .txt")
    parser.add_argument("--plan", default="paper", choices=PLANS, help="all of the paper's, or few recipes")
    parser.add_argument("--grids", help="only these, with commas between them")
    parser.add_argument("--rows", type=int, help="of each task, in the grid `longbench`; all where not given")
    parser.add_argument("--part", default=REPORT, choices=PARTS, help="half of longbench*'s and *-short's")
    parser.add_argument("--models", default="qwen2.5-coder-1.5b", help="one after the other")
    parser.add_argument("--weights", default="full", help="how weights are held, as in `infinipot eval`")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--side-by-side", type=int, default=1, help="workers, each with a model of its own")
    parser.add_argument("--minutes", type=float, default=60 * 24, help="begin no row later")
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args(words)
    until = time.time() + 60 * args.minutes
    for model in args.models.split(","):
        mine = copy(args)
        mine.model, mine.out = model, args.out / Path(model).name.removesuffix(".gguf")
        if time.time() < until:
            workers(mine, until)
        for line in gather(mine.out):
            print(f"{model}: {line}")
        untouched, every = left(mine)
        print(f"{model}: {every - untouched} of {every} parts begun or done", flush=True)


if __name__ == "__main__":
    main()
