"""One evaluation: a task, a grid of cells, a folder; every row that is not there yet is made and kept.

A `Workers` runs the jobs: this process, or many on a cluster. Only this module writes rows.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import fmean
from typing import Any, cast

from infinipot.engine import Engine
from infinipot.errors import InputError
from infinipot.eval import manifest as manifests
from infinipot.eval.folder import Folder, Row, key, opened
from infinipot.eval.grid import Grid
from infinipot.eval.runner import Job, Outcome, Runner
from infinipot.eval.tasks.task import ALL, BadRow, Example, Task, half
from infinipot.models import catalog, fingerprint
from infinipot.text.files import title
from infinipot.text.tokenizer import Format

Open = Callable[[], Engine]  # opens the model
DIGITS = 6  # of a score
GPU_BATCH = 8  # answers given together on a GPU, which one alone leaves idle


@dataclass(frozen=True)
class Evaluation:
    """A task, the cells that are measured on it and the folder of the rows."""

    task: Task
    grid: Grid
    out: Path
    seed: int = 0
    limit: int | None = None  # examples of each of the task's parts
    format: Format | None = None
    part: str = ALL  # the half of the examples; a task that parts its material itself has it in its options

    @property
    def options(self) -> dict[str, Any]:
        """What the examples depend on, for the manifest."""
        parted = {} if self.part == ALL else {"part": self.part}
        return {**self.task.describe(), "limit": self.limit, **parted}


@dataclass(frozen=True)
class Prepared:
    """What only a loaded model can tell."""

    model: Mapping[str, str]
    hardware: str
    examples: list[Example]
    bad: list[BadRow]


@dataclass(frozen=True)
class Step:
    """Where an evaluation stands."""

    done: int  # rows
    total: int
    work: float  # share of the text that is to be read, from 0 to 1
    cell: str = ""
    mean: float | None = None  # of the cell's scores so far
    row: Row | None = None


class Workers:
    """What runs jobs: this process and its model, opened when a job needs it; a cluster is a kind of it."""

    def __init__(self, opened: Open, batch: int | None = None) -> None:
        self._open, self._batch = opened, batch

    @cached_property
    def runner(self) -> Runner:
        """The runner of the model."""
        engine = self._open()
        return Runner(engine, self._batch or (GPU_BATCH if engine.model.device.type == "cuda" else 1))

    def prepare(self, wanted: Evaluation) -> Prepared:
        """Make the examples with the model's tokenizer, and refuse cells that could run none."""
        engine = self.runner.engine
        found = wanted.task.examples(lambda text: len(engine.tokenizer.encode(text)))
        examples, bad = _sorted_out(found, wanted.limit, wanted.part)
        model = model_facts(engine, wanted.format)
        self.runner.check(wanted.grid.cells(cast(Format, model["format"])), examples)
        return Prepared(model, manifests.hardware(str(engine.model.device)), examples, bad)

    def run(self, jobs: list[Job]) -> Iterator[tuple[Job, Outcome]]:
        """Yield every job with its outcome, in any order."""
        return self.runner.run(jobs)


def model_facts(engine: Engine, format: Format | None = None) -> dict[str, str]:
    """Return what a manifest says of a model; its weights are known by their file's hash or a sample."""
    release = catalog.get(engine.name)
    sample = "" if release else fingerprint.weights(engine.model, engine.sample)
    return {
        "name": title(engine.name),
        "weights": f"file:{release.sha256}" if release else f"sample:{sample}",
        "file": catalog.file_format(engine.name),
        "held": engine.weights,
        "device": engine.model.device.type,
        "dtype": engine.dtype or fingerprint.dtype(engine.model),
        "format": format or engine.format,
    }


def evaluate(wanted: Evaluation, workers: Workers) -> Iterator[Step]:
    """Run everything that is not done yet; yields before the first row and after every row."""
    known = workers.prepare(wanted)
    cells = wanted.grid.cells(cast(Format, known.model["format"]))
    manifest = manifests.made(
        {cell.name: cell.describe() for cell in cells},
        known.hardware,
        task=wanted.task.name,
        options=wanted.options,
        seed=wanted.seed,
        model=known.model,
        examples=manifests.of_examples(known.examples),
    )
    with opened(wanted.out, manifest) as folder:
        jobs = [Job(cell, example) for cell in cells for example in known.examples]
        yield from _run(wanted.task, jobs, known, workers, folder)


def _run(task: Task, jobs: list[Job], known: Prepared, workers: Workers, folder: Folder) -> Iterator[Step]:
    there = folder.done()
    for one in known.bad:
        found = {"kind": "bad", "file": Path(one.file).name, "line": one.line, "reason": one.reason}
        if key(found) not in there:
            folder.append(found)
    left = [job for job in jobs if job.key not in there]
    work = sum(len(job.example.text) for job in jobs) or 1
    read = work - sum(len(job.example.text) for job in left)
    scores: dict[str, list[float]] = defaultdict(list)
    for row in folder.rows:
        if row["kind"] == "example" and row["score"] is not None:
            scores[row["cell"]].append(row["score"])
    before = len(jobs) - len(left)
    yield Step(before, len(jobs), read / work)
    for done, (job, outcome) in enumerate(workers.run(left), start=before + 1):
        row = _row(task, job, outcome)
        folder.append(row)
        its = scores[row["cell"]]
        its += [] if row["score"] is None else [row["score"]]
        read += len(job.example.text)
        yield Step(done, len(jobs), read / work, row["cell"], fmean(its) if its else None, row)


def _row(task: Task, job: Job, outcome: Outcome) -> Row:
    """Return what is kept of a job, scored."""
    cell, example = job.key
    row: Row = {"kind": "example", "cell": cell, "example": example, "facts": dict(job.example.facts)}
    if outcome.error:
        return {**row, "score": None, "error": outcome.error}
    score = round(task.score(outcome.prediction, job.example), DIGITS)
    told = {"score": score, "prediction": outcome.prediction, "answers": list(job.example.answers)}
    told |= {"same_as": outcome.same_as} if outcome.same_as else {}
    counted = {"tokens_read": outcome.tokens_read, "cycles": outcome.cycles, "entries": outcome.entries}
    counted |= {"recalled": outcome.recalled} if outcome.recalled else {}
    seconds = {"read": outcome.read_seconds, "answer": outcome.answer_seconds}
    return {**row, **told, **counted, "seconds": seconds}


def _sorted_out(
    found: Iterable[Example | BadRow], limit: int | None, part: str
) -> tuple[list[Example], list[BadRow]]:
    """Part examples from rows that are none; take one half, and the first of each of the task's parts."""
    examples: dict[str, Example] = {}
    bad, seen = [], Counter[Any]()
    for one in found:
        if isinstance(one, BadRow):
            bad.append(one)
            continue
        if part not in (ALL, half(one.id)):
            continue
        seen[one.facts.get("task")] += 1
        if limit is None or seen[one.facts.get("task")] <= limit:
            if one.id in examples:
                raise InputError(f"two examples are called '{one.id}': rows could not be told apart")
            examples[one.id] = one
    if not examples:
        raise InputError(f"no example can be used: {bad[0]}" if bad else "the task has no examples")
    return list(examples.values()), bad
