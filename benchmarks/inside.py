"""Figures 2 and 3 and Table 8 of the paper from rows of LongBench.

    python benchmarks/inside.py --data longbench --tasks hotpotqa,narrativeqa --rows 8 \
        --model qwen2.5-coder-1.5b --capacity 4096 --out inside

Rows of a task are its own and those of its LongBench-E twin, in a seeded order in which every text comes
once before one comes again; only those longer than the pot, and not longer than --most-tokens, since global
scoring holds the whole text. Each is read with the recipes of `infinipot inspect --recipe paper`. Table 8 is
searched for among more rows, with two recipes and without global scoring.

A row is written to OUT/rows when it is done and not run again. --minutes ends the run before a row that
would take longer; --draw-only makes everything else of the rows that are there, without a model.
"""

from __future__ import annotations

import argparse
import gc
import hashlib
import json
import random
import shlex
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import chain, count
from pathlib import Path
from typing import Any

import torch

from infinipot.cli.inspect import PAPER, recipes
from infinipot.engine import Engine, open_engine
from infinipot.errors import ConfigError, InfiniPotError
from infinipot.eval import manifest as manifests
from infinipot.eval.estimates import bootstrapped
from infinipot.eval.evaluate import model_facts
from infinipot.eval.tasks.longbench import LongBench, names
from infinipot.eval.tasks.task import Example
from infinipot.inspect.findings import findings
from infinipot.inspect.run import Run, Whole, check_memory, record, whole
from infinipot.models.memory import available
from infinipot.reading.sampling import Generation
from infinipot.recipes.recipe import Recipe
from infinipot.text.files import title
from paper import search
from paper.folder import FIGURES, TABLE, paper, written

BEGAN = time.perf_counter()
SEARCH = "infinipot:question,sirllm"


@dataclass(frozen=True)
class Job:
    """A row to be read for the figures or for the table."""

    aim: str
    task: LongBench
    example: Example

    @property
    def file(self) -> str:
        return f"{self.aim}-{self.task.base}-{self.example.id}.json"


# Choosing ---------------------------------------------------------------------------


def tasks(folder: Path, listed: str) -> list[LongBench]:
    """The tasks by name; only question answering has the paper's CaP-Q."""
    found = [LongBench(name.strip(), folder) for name in listed.split(",") if name.strip()]
    for task in found:
        if not task.description.asks:
            raise ConfigError(f"{task.name} asks no question: choose a question-answering task")
    return found


def chosen(task: LongBench, fits: Callable[[str], bool], seed: int) -> list[Example]:
    """The rows that fit, in a seeded order that shows every text once before one comes again."""
    twin = f"{task.base}_e" if task.name == task.base else task.base
    rows: dict[tuple[str, str], Example] = {}
    for name in (task.name, *([twin] if twin in names() else [])):
        for example in _examples(name, task.folder):
            rows.setdefault((example.text, example.question), example)
    found = sorted((row for row in rows.values() if fits(row.text)), key=lambda row: row.id)
    random.Random(f"{seed} {task.base}").shuffle(found)
    turns: defaultdict[str, Iterator[int]] = defaultdict(count)
    return sorted(found, key=lambda row: next(turns[row.text]))


def _examples(name: str, folder: Path | None) -> Iterator[Example]:
    try:
        yield from (row for row in LongBench(name, folder).examples(len) if isinstance(row, Example))
    except InfiniPotError:  # a folder may have rows of one of the twins only
        return


def jobs(engine: Engine, args: argparse.Namespace) -> list[Job]:
    """What is to be read, in order."""
    sizes = f"longer than {args.capacity:,} and at most {args.most_tokens:,} tokens"

    @cache
    def fits(text: str) -> bool:
        return args.capacity < len(engine.tokenizer.encode(text)) <= args.most_tokens

    @cache
    def rows(task: LongBench) -> list[Example]:
        found = chosen(task, fits, args.seed)
        texts = len({row.text for row in found})
        print(f"{task.name}: {len(found)} rows of {texts} texts, {sizes}", flush=True)
        return found

    drawn = [
        Job(FIGURES, task, row) for task in tasks(args.data, args.tasks) for row in rows(task)[: args.rows]
    ]
    wanted = tasks(args.data, args.search_tasks) if args.search_rows else []
    sought = [Job(TABLE, task, row) for task in wanted for row in rows(task)]
    if not (found := drawn + sought[: args.search_rows]):
        raise ConfigError(f"no row is {sizes}: use another --capacity or --most-tokens")
    return found


# Reading ----------------------------------------------------------------------------


def read(engine: Engine, name: str, recipe: Recipe, example: Example) -> Run:
    """As the evaluation reads and asks, recorded."""
    recipe = replace(recipe, format=_format(engine, example))
    reader = engine.reader(recipe, example.query or example.question, example.bare)
    reader.check(example.question, example.new_tokens)
    entry = reader.pot.nbytes / recipe.config.capacity
    about = {"name": name, "recipe": recipe.describe(), "entry_bytes": entry}
    return record(reader, example.text, example.question, Generation(example.new_tokens), about)


def globally(engine: Engine, example: Example, run: Run) -> Whole:
    """One run with the whole text in the cache."""
    if engine.model.device.type == "cuda":  # what is only cached counts as taken
        gc.collect()
        torch.cuda.empty_cache()
    entry = run.record.about["entry_bytes"]
    check_memory(len(run.record.ids), entry, available(str(engine.model.device)))
    return whole(engine, example.text, example.question, _format(engine, example), example.bare)


def _format(engine: Engine, example: Example) -> Any:
    return "plain" if example.chat is False else engine.format


def figures_row(engine: Engine, job: Job, capacity: int) -> dict[str, Any]:
    example, started = job.example, time.perf_counter()
    wanted = recipes(PAPER, capacity, None, example.query, pool=1)
    runs = [read(engine, name, recipe, example) for name, recipe in wanted.items()]
    before = time.perf_counter()
    scored = globally(engine, example, runs[0])
    seconds = time.perf_counter() - before
    found = findings(runs, scored).json()
    for stated, run in zip(found["recipes"], runs, strict=True):
        stated["score"] = round(job.task.score(run.answer, example), 4)
    return {
        "aim": job.aim,
        "task": job.task.name,
        "dataset": example.facts["dataset"],
        "id": example.id,
        "text": hashlib.sha256(example.text.encode(errors="surrogatepass")).hexdigest()[:16],
        "query": example.query,
        "answers": list(example.answers),
        "global_seconds": round(seconds, 2),
        "seconds": round(time.perf_counter() - started, 2),
        **found,
    }


def table_row(engine: Engine, job: Job, capacity: int) -> dict[str, Any]:
    example, started = job.example, time.perf_counter()
    wanted = recipes(SEARCH, capacity, None, example.query, pool=1)
    runs = [read(engine, name, recipe, example) for name, recipe in wanted.items()]
    scores = [job.task.score(run.answer, example) for run in runs]
    found = search.searched(job.task.name, example.id, example.query, example.answers, runs, scores)
    return {"aim": job.aim, "seconds": round(time.perf_counter() - started, 2), "row": found.json()}


def run(engine: Engine, todo: Sequence[Job], args: argparse.Namespace) -> None:
    """Read every row that is not there yet, as long as there is time."""
    longest = {FIGURES: 0.0, TABLE: 0.0}
    for number, job in enumerate(todo, 1):
        path = args.out / "rows" / job.file
        told = f"{number}/{len(todo)} {job.aim} {job.task.name} {job.example.id}"
        if path.exists():
            print(f"{told}: done before", flush=True)
            continue
        spent = time.perf_counter() - BEGAN
        if args.minutes and spent + longest[job.aim] > 60 * args.minutes:
            print(f"{told}: not begun, {spent / 60:.1f} minutes have passed; run again to go on", flush=True)
            return
        row = (figures_row if job.aim == FIGURES else table_row)(engine, job, args.capacity)
        longest[job.aim] = max(longest[job.aim], row["seconds"])
        written(path, json.dumps(row, ensure_ascii=False) + "\n")
        print(f"{told}: {_brief(row)}, {row['seconds']:.1f} s", flush=True)


def _brief(row: Mapping[str, Any]) -> str:
    if row["aim"] == TABLE:
        found = row["row"]
        return f"{found['tokens']:,} tokens, {found['verdict']}, gain {found['gain']:.2f}"
    hits = ", ".join(f"{r['name']} {100 * r['hit_rate']['mean']:.1f}" for r in row["recipes"])
    return f"{row['tokens']:,} tokens, {row['recipes'][-1]['cycles']} cycles, hit rate {hits}"


# Writing ----------------------------------------------------------------------------


def agreed(engine: Engine, args: argparse.Namespace) -> None:
    """Write what this run is beside its rows, or refuse a folder that has rows of another."""
    model = model_facts(engine)
    wanted = recipes(f"{PAPER},sirllm", args.capacity, None, "", pool=1)
    cells = {name: recipe.describe() for name, recipe in wanted.items()}
    hardware = manifests.hardware(str(engine.model.device))
    told = {"task": "inside", "options": {"capacity": args.capacity}, "seed": args.seed}
    made = manifests.made(cells, hardware, **told, model=model, examples={})
    path = args.out / "rows" / "manifest.json"
    if path.exists():
        old = json.loads(path.read_text("utf-8"))
        if found := manifests.differences(old, made):
            raise ConfigError(
                f"{args.out} has rows of another run, {', '.join(found[:3])}: use another --out"
            )
        made["sessions"] = [*old["sessions"], *made["sessions"]]
    made["sessions"][-1]["command"] = command(args)
    path.parent.mkdir(parents=True, exist_ok=True)
    written(path, json.dumps(made, indent=1) + "\n")


def command(args: argparse.Namespace) -> str:
    """What was asked for; of folders only the name, since where they lie is no part of a result."""
    told = {name: value.name if isinstance(value, Path) else value for name, value in vars(args).items()}
    told["model"] = title(args.model)
    given = {name: value for name, value in told.items() if value is not None and value is not False}
    words = ([f"--{name.replace('_', '-')}", str(value)] for name, value in given.items())
    return shlex.join(["python", "benchmarks/inside.py", *chain.from_iterable(words)])


def interval(values: Sequence[float]) -> tuple[float, float]:
    found = bootstrapped(values)
    assert found is not None
    return found.low, found.high


def finish(out: Path) -> None:
    """Make the figures and the table of the rows that are there."""
    files = sorted((out / "rows").glob("*-*.json"))
    if not files:
        raise ConfigError(f"{out}/rows has no row yet: run it without --draw-only, or with more --minutes")
    about = json.loads((out / "rows" / "manifest.json").read_text("utf-8"))
    rows = [json.loads(path.read_text("utf-8")) for path in files]
    for line in paper(rows, about, out, interval):
        print(line)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, help="folder with LongBench's .jsonl files, packed or not")
    parser.add_argument("--tasks", default="hotpotqa,narrativeqa")
    parser.add_argument("--rows", type=int, default=8, help="of each task, for the figures")
    parser.add_argument("--most-tokens", type=int, default=32000)
    parser.add_argument("--search-tasks", default="hotpotqa")
    parser.add_argument("--search-rows", type=int, default=60, help="at most, for the table; 0 for no table")
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--capacity", type=int, default=4096)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, help="begin no row that would end later")
    parser.add_argument("--draw-only", action="store_true")
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    try:
        if not args.draw_only:
            engine = open_engine(args.model, args.device, args.dtype)
            todo = jobs(engine, args)
            agreed(engine, args)
            run(engine, todo, args)
        finish(args.out)
    except InfiniPotError as error:
        raise SystemExit(f"error: {error}") from error


if __name__ == "__main__":
    main()
