"""Recall measured: pure pot, passages alone, pot with recall, the whole text again, and the right fact alone.

    python benchmarks/recall.py --model qwen2.5-coder-1.5b --dtype bfloat16 --data DIR --out recall

DIR holds `facts`, `books`, `essays`, `locomo` and `longbench`. Each part is what `infinipot eval` would run,
on the half of a set that nothing was chosen on (PART-tune: on the other one). Rows are kept under OUT/PART,
and the same command goes on where it ended; several parts may run at once, each with its own command. Before
that, seconds and memory: reading with and without an archive in turns, asking with and without recall in
turns. OUT/summary.json, or summary-PARTS.json, has everything but the rows.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import torch

from infinipot import Generation, Recipe
from infinipot.core.config import ALL as ALL_AGAIN
from infinipot.engine import Engine, open_engine
from infinipot.errors import ConfigError, InfiniPotError
from infinipot.eval.evaluate import Evaluation, Workers, evaluate
from infinipot.eval.folder import read_rows
from infinipot.eval.grid import Grid
from infinipot.eval.results import summary
from infinipot.eval.tasks.task import ALL, BadRow, Count, Example, Task, half, make

QA = "narrativeqa,qasper,multifieldqa_en,hotpotqa,2wikimqa,musique"
QA += ",qasper_e,multifieldqa_en_e,hotpotqa_e,2wikimqa_e"


@dataclass(frozen=True)
class Part:
    """Some cells on one task."""

    name: str
    task: str
    options: dict[str, Any]
    cells: tuple[tuple[str, ...], ...]  # recipe, recall, judge, catalyst, meaning
    half: str = ALL  # of the examples, as `infinipot eval --part`; facts know their halves themselves
    each: int | None = None  # examples of a conversation in each half
    longer: int = 0  # tokens that a text has more than


@dataclass(frozen=True)
class Chosen:
    """A task without short texts, and with so many examples of a conversation at most, in each half."""

    task: Task
    longer: int
    each: int | None

    @property
    def name(self) -> str:
        """The task's own name."""
        return self.task.name

    def describe(self) -> dict[str, Any]:
        """Return what the examples depend on."""
        return {**self.task.describe(), "each": self.each, "longer": self.longer}

    def examples(self, count: Count) -> Iterator[Example | BadRow]:
        """Yield the examples of the task that are chosen."""
        seen = Counter[Any]()
        for one in self.task.examples(count):
            if isinstance(one, Example):
                place = half(one.id), one.facts.get("conversation")
                seen[place] += 1
                most = seen[place] if self.each is None else self.each
                if seen[place] > most or (self.longer and count(one.text) <= self.longer):
                    continue
            yield one

    def score(self, prediction: str, example: Example) -> float:
        """Score as the task does."""
        return self.task.score(prediction, example)


class Cells:
    """The cells of several grids, so that a part's texts are made once."""

    def __init__(self, part: Part, capacity: int) -> None:
        self._grids = [_grid(capacity, *cell) for cell in part.cells]

    def cells(self, format: Any = "plain") -> tuple[Any, ...]:
        """Return every cell once."""
        return tuple(cell for grid in self._grids for cell in grid.cells(format))


def _grid(
    capacity: int,
    recipe: str,
    recall: str = "",
    judge: str = "",
    catalyst: str = "general",
    meaning: str = "",
) -> Grid:
    given = {"recall": recall, "judge": judge, "meaning": meaning}
    options = {name: (value,) for name, value in given.items() if value}
    return Grid((recipe,), (capacity,), (catalyst,), options)


def parts(args: argparse.Namespace) -> list[Part]:
    """What is measured, the most wanted first."""
    data, full = args.data, (("full",),)
    facts = {"data": data / "facts", "hay": str(data / "books"), "part": "report"}
    cells = {
        "pure": (("infinipot", "0"),),
        "words": (("infinipot", "1k"),),
        "passages-words": (("passages", "1k"),),
        "recall": (("infinipot", "1k", "1024"),),
        "passages": (("passages", "1k", "1024"),),
    }
    again, more = (("infinipot", "all"),), (("infinipot", "2k", "1024"),)
    every = tuple(cell for way in cells.values() for cell in way)
    # Words alone against sentences by their meaning, which need the extra `meaning`.
    meant = tuple(
        (way, "1k", "", "general", most) for most in ("0", "24") for way in ("passages", "infinipot")
    )
    many, few = {"texts": 2, "planted": 25}, {"texts": 1, "planted": 3, "each": 1}
    other = {**facts, "facts": "paraphrase"}
    needles = {"hay": str(data / "essays"), "trials": 1, "depths": "0.1,0.5,0.9"}
    locomo = ("locomo", {"data": data / "locomo"})
    longbench = ("longbench", {"data": data / "longbench", "tasks": QA})
    known = (("infinipot", "0", "", "question"),)
    long: dict[str, Any] = {"longer": args.capacity}
    return [
        Part("facts-alone", "facts", {**facts, "lengths": "0", **many}, full),
        Part("paraphrase-alone", "facts", {**other, "lengths": "0"}, full),
        Part(
            "paraphrase",
            "facts",
            {**other, "lengths": "16k,128k"},
            every,
        ),
        Part("paraphrase-meaning", "facts", {**other, "lengths": "16k,128k"}, meant),
        Part("facts-meaning", "facts", {**facts, "lengths": "16k,128k", **many}, meant),
        *(
            Part(
                f"{name}-meaning-tune",
                "facts",
                {**task, "part": "tune", "lengths": "16k,128k", **many},
                meant,
            )
            for name, task in (("paraphrase", other), ("facts", facts))
        ),
        *(Part(f"longbench-{way}", *longbench, cell, "report", **long) for way, cell in cells.items()),
        Part("longbench-known", *longbench, known, "report", **long),
        Part("longbench-2k", *longbench, more, "report", **long),
        *(Part(f"locomo-{way}", *locomo, cell, "report", 48) for way, cell in cells.items()),
        Part("locomo-full", *locomo, full, "report", 48),
        Part("facts-16k", "facts", {**facts, "lengths": "16k", "texts": 5}, every),
        Part("facts-128k", "facts", {**facts, "lengths": "128k", **many}, every),
        Part("facts-1m", "facts", {**facts, "lengths": "1m", **many}, every),
        Part("essays", "needle", {**needles, "lengths": "4k,16k,64k,128k,1m"}, cells["recall"]),
        Part("again-16k", "facts", {**facts, "lengths": "16k", "texts": 1}, again),
        Part("again-128k", "facts", {**facts, "lengths": "128k", "texts": 1}, again),
        Part("again-1m", "facts", {**facts, "lengths": "1m", **few}, again),
        Part("longbench-recall-tune", *longbench, cells["recall"], "tune", **long),
        Part("longbench-2k-tune", *longbench, more, "tune", **long),
        Part("locomo-tune", *locomo, (*cells["passages"], *cells["recall"], *more), "tune", 24),
    ]


def run(part: Part, engine: Engine, args: argparse.Namespace, ends: float) -> list[dict[str, Any]]:
    """Run a part's cells; return what came of each."""
    task, out = make(part.task, part.options, 0), args.out / part.name
    task = Chosen(task, part.longer, part.each) if part.longer or part.each else task
    wanted = Evaluation(task, Cells(part, args.capacity), out, part=part.half)  # type: ignore[arg-type]  # a grid by its cells
    for _ in evaluate(wanted, Workers(lambda: engine, args.batch)):
        if time.monotonic() > ends:
            break
    found = summary(read_rows(args.out / part.name))["cells"]
    for cell in found:
        interval = " to ".join(f"{100 * x:.1f}" for x in cell["interval"]) if cell["interval"] else ""
        shown = f"{100 * cell['score']:.1f} ({interval})" if cell["score"] is not None else "-"
        print(f"{part.name:20} {cell['cell']:50} {shown:24} {cell['rows']:4} rows", flush=True)
    return list(found)


def seconds(engine: Engine, args: argparse.Namespace) -> dict[str, Any]:
    """Return what archive and recall cost: in turns, medians with the least and the most."""
    recipe = Recipe.named(capacity=args.capacity, format=engine.format)
    facts = {"data": args.data / "facts", "hay": str(args.data / "books"), "part": "report"}
    task = make("facts", {**facts, "lengths": str(args.tokens)}, 1)
    made = task.examples(lambda text: len(engine.tokenizer.encode(text)))
    asked = [one for one in made if isinstance(one, Example)]
    plain, archived = engine.reader(recipe), engine.reader(recipe)
    plain.archive, memory = None, {"loaded": used()}
    took: dict[str, list[float]] = {"archive": [], "none": [], "0": [], "recall": []}
    for _ in range(args.rounds + 1):
        for name, reader in (("none", plain), ("archive", archived)):
            reader.clear()
            started = time.perf_counter()
            reader.read(asked[0].text)
            took[name].append(time.perf_counter() - started)
    memory["read"] = used()
    for one in asked[: 4 * args.rounds]:
        for name, recall in (("0", 0), ("recall", None)):
            started = time.perf_counter()
            archived.ask(one.query, Generation(16), recall)
            took[name].append(time.perf_counter() - started)
    memory["asked"] = used()
    told = {name: [round(value, 4) for value in values[1:]] for name, values in took.items()}
    reading = [with_ / without for with_, without in zip(told["archive"], told["none"], strict=True)]
    asking = [with_ - without for with_, without in zip(told["recall"], told["0"], strict=True)]
    return {
        "tokens": archived.tokens_read,
        "reading_with_over_without": spread(reading),
        "ask_with_recall_minus_without_s": spread(asking),
        "archive_bytes": _size(archived),
        "pot_bytes": archived.pot.nbytes,
        "memory": memory,
        "seconds": told,
    }


def costs(engine: Engine, args: argparse.Namespace) -> list[dict[str, Any]]:
    """Return what answers take, for every length and way: seconds, tokens read again, bytes of each kind."""
    facts = {"data": args.data / "facts", "hay": str(args.data / "books"), "part": "report"}
    ways = (("pure pot", "infinipot", 0), ("passages alone", "passages", None))
    ways += (("pot with recall", "infinipot", None), ("whole text again", "infinipot", ALL_AGAIN))
    found: list[dict[str, Any]] = []
    for length in args.lengths.split(","):
        task = make("facts", {**facts, "lengths": length}, 1)
        made = task.examples(lambda text: len(engine.tokenizer.encode(text)))
        asked = [one for one in made if isinstance(one, Example)]
        for way, recipe, recall in ways:
            reader = engine.reader(Recipe.named(recipe, capacity=args.capacity, format=engine.format))
            started = time.perf_counter()
            reader.read(asked[0].text)
            read, took, again = time.perf_counter() - started, [], []
            if torch.cuda.is_available():
                torch.cuda.reset_peak_memory_stats()
            for one in asked[: 3 if recall == ALL_AGAIN else 11]:  # the first is not counted: it warms up
                started = time.perf_counter()
                answer = reader.ask(one.query, Generation(16), recall)
                took.append(time.perf_counter() - started)
                count = sum(len(engine.tokenizer.encode(passage.text)) for passage in answer.passages)
                again.append(count + (reader.tokens_read if recall == ALL_AGAIN else 0))
            found.append(
                {
                    "length": length,
                    "way": way,
                    "tokens": reader.tokens_read,
                    "reading_s": round(read, 3),
                    "ask_s": spread(took[1:]),
                    "read_again": round(statistics.fmean(again[1:])),
                    "resident": psutil.Process().memory_info().rss,
                    "gpu": torch.cuda.max_memory_allocated() if torch.cuda.is_available() else 0,
                    "pot": reader.pot.nbytes,
                    "archive": _size(reader) if recall != 0 else 0,
                }
            )
            print(found[-1], flush=True)
            del reader
    return found


def _size(reader: Any) -> int:
    with tempfile.TemporaryDirectory() as folder:
        reader.archive.save(Path(folder) / "a")
        return (Path(folder) / "a").stat().st_size


def used() -> dict[str, int]:
    """Return the most bytes that this process has had so far: resident, and on the GPU."""
    found = {"resident": 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss}
    return found | ({"gpu": torch.cuda.max_memory_allocated()} if torch.cuda.is_available() else {})


def resident(engine: Engine, args: argparse.Namespace) -> dict[str, Any]:
    """Return the peaks of memory after a text of 10K tokens and after one of 1M, both archived."""
    texts = make("facts", {"data": args.data / "facts", "hay": str(args.data / "books"), "lengths": "1m"}, 2)
    text = next(iter(texts.examples(lambda text: len(engine.tokenizer.encode(text))))).text  # type: ignore[union-attr]  # no row is bad
    reader, found = engine.reader(Recipe.named(capacity=args.capacity, format=engine.format)), {}
    for name, length in (("10k", 40_000), ("1m", len(text))):
        reader.clear()
        reader.read(text[at : at + 65536] for at in range(0, length, 65536))
        found[name] = {"tokens": reader.tokens_read, **used()}
    return found


def spread(values: list[float]) -> dict[str, float]:
    """Return the median, the least and the most."""
    found = {"median": statistics.median(values), "least": min(values), "most": max(values)}
    return {name: round(value, 4) for name, value in found.items()}


def main() -> None:
    """Measure as long as there is time."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="qwen2.5-coder-1.5b")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--capacity", type=int, default=4096)
    parser.add_argument("--tokens", type=int, default=131072, help="of the text that seconds are measured on")
    parser.add_argument("--lengths", default="16k,128k,1m", help="of texts that costs are measured on")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--batch", type=int)
    parser.add_argument("--minutes", type=float, default=9)
    parser.add_argument("--parts", default="", help="names, commas between; all where empty")
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    ends = time.monotonic() + 60 * args.minutes
    engine = open_engine(args.model, args.device, args.dtype)
    chosen = [one for one in parts(args) if not args.parts or one.name in args.parts.split(",")]
    told: dict[str, Any] = {"model": engine.name, "device": str(engine.model.device), "dtype": engine.dtype}
    told["parts"], started = {}, time.monotonic()
    args.out.mkdir(parents=True, exist_ok=True)
    if not args.parts or "seconds" in args.parts.split(","):
        told["seconds"] = seconds(engine, args)
        print({name: value for name, value in told["seconds"].items() if name != "seconds"}, flush=True)
    if not args.parts or "costs" in args.parts.split(","):
        told["costs"] = costs(engine, args)
    if not args.parts or "resident" in args.parts.split(","):
        told["resident"] = resident(engine, args)
        print(told["resident"], flush=True)
    summary_file = args.out / (f"summary-{args.parts}.json" if args.parts else "summary.json")
    summary_file.write_text(json.dumps(told, indent=1) + "\n", "utf-8")
    for part in chosen:
        if time.monotonic() > ends:
            break
        try:
            if "meaning" in part.name and engine.model.meaning is None:
                raise ConfigError("the extra `meaning` is not installed: all cells would be words alone")
            told["parts"][part.name] = run(part, engine, args, ends)
        except InfiniPotError as error:
            print(f"{part.name}: {error}", flush=True)
        if torch.cuda.is_available():
            told["gpu_bytes"] = torch.cuda.max_memory_reserved()
        told["took_s"] = round(time.monotonic() - started, 1)
        summary_file.write_text(json.dumps(told, indent=1) + "\n", "utf-8")
        print(f"  {part.name} done after {told['took_s']} s", flush=True)


if __name__ == "__main__":
    main()
