"""Recall measured: pure pot, passages alone, pot with recall, the whole text again, and the right fact alone.

    python benchmarks/recall.py --model qwen2.5-coder-1.5b --dtype bfloat16 --data DIR --out recall

DIR holds `facts`, `books`, `essays`, `locomo` and `longbench`. Each part is what `infinipot eval` would run,
on the half of a set that nothing was chosen on (PART-tune: on the other one). Rows are kept under OUT/PART,
and the same command goes on where it ended; several parts may run at once, each with its own command. Before
that, seconds and memory: reading with and without an archive in turns, asking with and without recall in
turns. OUT/summary.json, or summary-PARTS.json, has everything but the rows.

Parts that begin with `aside` say how much of the pot is best beside passages (`ASIDES`): each on the tune
half, to choose by, and on the other one.
"""

from __future__ import annotations

import argparse
import json
import lzma
import resource
import statistics
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
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
from infinipot.eval.tasks.task import ALL, REPORT, TUNE, BadRow, Count, Example, Task, half, make
from infinipot.reading import recalled
from infinipot.reading.room import make_room_for_catalyst
from infinipot.recall.search import coverage

QA = "narrativeqa,qasper,multifieldqa_en,hotpotqa,2wikimqa,musique"
JUDGED = 32  # passages, of a way that is timed beside the default
QA += ",qasper_e,multifieldqa_en_e,hotpotqa_e,2wikimqa_e"


@dataclass(frozen=True)
class Aside:
    """How much of the pot stays beside passages, and what else is looked for where words find little."""

    sure: int  # a capacity's part where the best passage has most of the question's telling words; 0: nothing
    unsure: int  # where it has not
    recent: int = 0  # last slots that stay whatever the question
    asks_pot: bool = False  # where words find little, the pot's own answer is looked for, not keywords

    def make_way(self, reader: Any, question: str) -> None:
        """Leave of the pot what matters most, by how well words have found."""
        found, telling = coverage(reader.archive, question)
        part = self.sure if found > recalled.COVERED * telling else self.unsure
        session = reader.session
        if not part:
            session.forget_slots()
        elif session.distils and session.pot.cycles and reader.config.capacity // part < session.pot.fill:
            make_room_for_catalyst(session)
            session.write([], distil=True, recent=self.recent, budget=reader.config.capacity // part)

    @contextmanager
    def tried(self) -> Iterator[None]:
        """Have it so for a while."""
        before, aimed = (recalled.aim, recalled.make_way, recalled.said), recalled.aim

        def aim(reader: Any, question: str) -> None:
            aimed(reader, question)
            if reader.session.mode.prompt != "passages":
                self.make_way(reader, question)

        def said(reader: Any, prompt: str, question: str, most: int, stops: Any = ()) -> str:
            if reader.session.mode.prompt == "passages":  # there is no pot to ask
                return before[2](reader, prompt, question, most, stops)
            return "".join(reader.fork().answer(question, Generation(most), ()))

        recalled.aim, recalled.make_way = aim, lambda reader: None  # noqa: ARG005 - as it is called
        recalled.said = said if self.asks_pot else before[2]
        try:
            yield
        finally:
            recalled.aim, recalled.make_way, recalled.said = before


ASIDES = {
    "eighth": Aside(8, 8, 64),  # today's
    "plain": Aside(8, 8),
    "sure": Aside(0, 8),
    "more": Aside(0, 2),
    "own": Aside(0, 8, asks_pot=True),
}


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
    aside: str = ""  # of ASIDES; today's where empty


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
    # Words alone against sentences by their meaning, which need the model of sentences.
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
        *asides(args),
        Part("locomo-tune", *locomo, (*cells["passages"], *cells["recall"], *more), "tune", 24),
    ]


def asides(args: argparse.Namespace) -> list[Part]:
    """How much of the pot stays beside passages, on whole halves; and what it is compared with."""
    data, words, alone = args.data, (("infinipot", "1k"),), (("passages", "1k"),)
    locomo = ("locomo", {"data": data / "locomo"})
    longbench = ("longbench", {"data": data / "longbench", "tasks": QA})
    facts = {"data": data / "facts", "hay": str(data / "books"), "texts": 2, "planted": 25}
    needles = {"hay": str(data / "essays"), "trials": 1, "depths": "0.1,0.5,0.9"}
    found = [
        Part("aside-essays", "needle", {**needles, "lengths": "4k,16k,64k,128k,1m"}, words),
        Part(
            "aside-essays-sure", "needle", {**needles, "lengths": "4k,16k,64k,128k,1m"}, words, aside="sure"
        ),
    ]
    ways: dict[str, tuple[tuple[tuple[str, ...], ...], str]] = {
        "passages": (alone, ""),
        **{name: (words, name) for name in ASIDES},
        "pure": ((("infinipot", "0"),), ""),
        "known": ((("infinipot", "0", "", "question"),), ""),
        "full": ((("full",),), ""),
        "judged": ((("infinipot", "1k", "32"),), ""),
        "passages-judged": ((("passages", "1k", "32"),), ""),
    }
    for part in (TUNE, REPORT):
        for name, (cells, aside) in ways.items():
            more: dict[str, Any] = {"half": part, "aside": aside}
            found.append(Part(f"aside-locomo-{part}-{name}", *locomo, cells, **more))
            found.append(
                Part(f"aside-longbench-{part}-{name}", *longbench, cells, longer=args.capacity, **more)
            )
            for lengths in ("16k,128k", "1m"):
                planted = {**facts, "part": part, "lengths": lengths}
                last = "" if lengths != "1m" else "-1m"
                found.append(Part(f"aside-facts-{part}-{name}{last}", "facts", planted, cells, aside=aside))
    return found


def run(part: Part, engine: Engine, args: argparse.Namespace, ends: float) -> list[dict[str, Any]]:
    """Run a part's cells; return what came of each."""
    task, out = make(part.task, part.options, 0), args.out / part.name
    task = Chosen(task, part.longer, part.each) if part.longer or part.each else task
    wanted = Evaluation(task, Cells(part, args.capacity), out, part=part.half)  # type: ignore[arg-type]  # a grid by its cells
    with ASIDES[part.aside].tried() if part.aside else nullcontext():
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
    given = {"capacity": args.capacity, "format": engine.format, "meaning": args.meaning}
    recipe, judging = (Recipe.named(**given, judge=judge) for judge in (0, JUDGED))
    facts = {"data": args.data / "facts", "hay": str(args.data / "books"), "part": "report"}
    task = make("facts", {**facts, "lengths": str(args.tokens)}, 1)
    made = task.examples(lambda text: len(engine.tokenizer.encode(text)))
    asked = [one for one in made if isinstance(one, Example)]
    plain, archived = engine.reader(recipe), engine.reader(recipe)
    plain.archive, memory, judged = None, {"loaded": used()}, engine.reader(judging)
    took: dict[str, list[float]] = {name: [] for name in ("archive", "none", "0", "recall", "judged")}
    for _ in range(args.rounds + 1):
        for name, reader in (("none", plain), ("archive", archived)):
            reader.clear()
            started = time.perf_counter()
            reader.read(asked[0].text)
            took[name].append(time.perf_counter() - started)
    memory["read"] = used()
    judged.read(asked[0].text)
    for one in asked[: 4 * args.rounds]:
        for name, reader, recall in (
            ("0", archived, 0),
            ("recall", archived, None),
            ("judged", judged, None),
        ):
            started = time.perf_counter()
            reader.ask(one.query, Generation(16), recall)
            took[name].append(time.perf_counter() - started)
    memory["asked"] = used()
    told = {name: [round(value, 4) for value in values[1:]] for name, values in took.items()}
    reading = [with_ / without for with_, without in zip(told["archive"], told["none"], strict=True)]
    asking, longer = (
        [with_ - without for with_, without in zip(told[name], told["0"], strict=True)]
        for name in ("recall", "judged")
    )
    return {
        "tokens": archived.tokens_read,
        "reading_with_over_without": spread(reading),
        "ask_with_recall_minus_without_s": spread(asking),
        f"ask_with_judge_{JUDGED}_minus_without_s": spread(longer),
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
        for way, recipe, recall in (one for one in ways if not args.ways or one[0] in args.ways.split(",")):
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
    """Return the most memory seen while texts of 10K and of 1M tokens are read and asked about, archived.

    By words alone. The texts are files, read in pieces. A short one comes first: what a process needs once is
    there then.
    """
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, tokens in (("warm", 10_000), ("10k", 10_000), ("1m", args.most)):
            reader = engine.reader(Recipe.named(capacity=args.capacity, format=engine.format, meaning=0))
            with (
                watched() as seen,
                _book(args, Path(folder) / "book", 4 * tokens).open(encoding="utf-8") as text,
            ):
                reader.read(iter(lambda: text.read(8192), ""))
                reader.ask("Who is the captain of the ship, and what happens to him?", Generation(16))
            found[name] = {"tokens": reader.tokens_read, **seen}
            print(name, found[name], flush=True)
            del reader
    return found


def _book(args: argparse.Namespace, path: Path, characters: int) -> Path:
    """Write the beginning of the books to a file, in pieces."""
    left = characters
    with path.open("w", encoding="utf-8") as out:
        while left > 0:
            for book in sorted((args.data / "books").glob("*.xz")):
                with lzma.open(book, "rt", encoding="utf-8") as text:
                    while left > 0 and (piece := text.read(min(left, 8192))):
                        out.write(piece)
                        left -= len(piece)
    return path


@contextmanager
def watched() -> Iterator[dict[str, int]]:
    """Yield what will say the most resident bytes of this process meanwhile, at the beginning and the end."""
    process, over = psutil.Process(), threading.Event()
    seen = {"before": process.memory_info().rss, "most": 0, "after": 0}

    def look() -> None:
        while not over.wait(0.02):
            seen["most"] = max(seen["most"], process.memory_info().rss)

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield seen
    finally:
        over.set()
        thread.join()
        seen["after"] = process.memory_info().rss
        seen["most"] = max(seen["most"], seen["after"])


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
    parser.add_argument("--meaning", type=int, default=0, help="sentences judged where words find little")
    parser.add_argument("--lengths", default="16k,128k,1m", help="of texts that costs are measured on")
    parser.add_argument("--ways", default="", help="of `costs`, commas between; all where empty")
    parser.add_argument(
        "--most", type=int, default=1_050_000, help="tokens of the text for `resident`, about"
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--batch", type=int)
    parser.add_argument("--minutes", type=float, default=9)
    parser.add_argument("--parts", default="", help="names, commas between; all where empty")
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    ends = time.monotonic() + 60 * args.minutes
    engine = open_engine(args.model, args.device, args.dtype)
    chosen = parts(args)
    if args.parts:  # in the order they are named in
        known = {one.name: one for one in chosen}
        chosen = [known[name] for name in args.parts.split(",") if name in known]
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
    summary_file = args.out / (f"summary-{args.parts[:100]}.json" if args.parts else "summary.json")
    summary_file.write_text(json.dumps(told, indent=1) + "\n", "utf-8")
    for part in chosen:
        if time.monotonic() > ends:
            break
        try:
            if "meaning" in part.name and engine.model.meaning is None:
                raise ConfigError(
                    "by words alone without the model of sentences: infinipot models pull all-mpnet-base-v2"
                )
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
