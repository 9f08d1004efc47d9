"""Rows that several cells have in common are made once, for `grids.py`; copies say whose row they are.

Two cells do the same with an example if they read it by the same recipe, whatever its name (`by-task` is
`general` with `units=slots` but in tasks of question answering), or if text, question and answer fit the
pots of both: then nothing is ever dropped. Workers tell one another through a file each. Answers are given
in larger batches than reading would need, of rows that may say equally much.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from itertools import groupby, islice
from math import inf
from operator import attrgetter
from pathlib import Path
from typing import cast

from infinipot.eval.evaluate import Evaluation, Open, Prepared, Workers
from infinipot.eval.folder import Row
from infinipot.eval.grid import BY_TASK, Cell
from infinipot.eval.runner import Job, Outcome
from infinipot.eval.tasks.task import Example
from infinipot.reading.catalyst import CATALYSTS
from infinipot.text.tokenizer import Format

AROUND = 128  # tokens of a format's own, and of the catalyst beside its question
LETTERS = 12  # of a token at most on average: longer texts are not counted
NAMES = ("name", "bounds", "note")  # of a recipe's description: two recipes may differ in no more than these


class Known:
    """Outcomes by what was done, of all workers of a grid: a file for each of them."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder, self._mine = folder, folder / f"{os.getpid()}.jsonl"
        self._read: dict[Path, int] = {}  # bytes of each file
        self._found: dict[str, tuple[str, Outcome]] = {}

    def refresh(self) -> None:
        """Read what the others have written since."""
        for path in sorted(self._folder.glob("*.jsonl")):
            with path.open("rb") as stream:
                stream.seek(self._read.get(path, 0))
                whole, _, _ = stream.read().rpartition(b"\n")
            self._read[path] = self._read.get(path, 0) + len(whole) + bool(whole)
            for line in whole.splitlines():
                known = json.loads(line)
                self._found[known["key"]] = known["cell"], Outcome(**known["outcome"])

    def learn(self, key: str, row: Row) -> None:
        """Take an earlier run's row; only this process knows it."""
        seconds, counts = row["seconds"], {name: row[name] for name in ("tokens_read", "cycles", "entries")}
        took = {f"{name}_seconds": seconds[name] for name in ("read", "answer")}
        told = Outcome(row["prediction"], **counts, **took)
        self._found.setdefault(key, (row["cell"], told))

    def get(self, key: str, job: Job) -> Outcome | None:
        """Return what came of the same work, with the cell that it was done for."""
        if key not in self._found:
            return None
        cell, outcome = self._found[key]
        return replace(outcome, same_as="" if cell == job.cell.name else cell)

    def put(self, key: str, job: Job, outcome: Outcome) -> None:
        """Tell the others."""
        if not outcome.error:
            line = {"key": key, "cell": job.cell.name, "outcome": asdict(outcome)}
            with self._mine.open("a", encoding="ascii") as stream:
                stream.write(json.dumps(line) + "\n")


class Sharing(Workers):
    """This process and its model; takes over rows that are known, and makes no row later than `until`.

    rows      of each of a task's parts, drawn by a hash
    longest   letters of a text; longer ones are left out
    share     which of so many equal shares of these examples, the others being other workers'
    grace     seconds after `until` in which rows that were begun may still end
    """

    def __init__(self, opened: Open) -> None:
        super().__init__(opened)
        self.known: Known | None = None
        self.rows: float = inf
        self.longest, self.until, self.grace = inf, inf, 0.0
        self.share = 0, 1
        self._prepared: dict[str, Prepared] = {}
        self._taken: set[str] = set()  # names of the examples that are this worker's
        self._counts: dict[str, int] = {}

    def prepare(self, wanted: Evaluation) -> Prepared:
        """Make the examples once for all cells."""
        told = json.dumps([wanted.task.name, wanted.options], default=str)
        if told not in self._prepared:
            self._prepared[told] = super().prepare(wanted)
        known = self._prepared[told]
        self.runner.check(wanted.grid.cells(cast(Format, known.model["format"])), known.examples)
        self._taken = taken(known.examples, self.rows, self.longest, self.share)
        return known

    def learn(self, wanted: Evaluation, cells: Iterable[Cell], rows: Iterable[Row]) -> None:
        """Take over what an earlier run computed for these cells."""
        if self.known is None:
            return
        examples = {one.id: one for one in self.prepare(wanted).examples}
        named = {cell.name: cell for cell in cells}
        for row in rows:
            made = row["kind"] == "example" and row["score"] is not None and "same_as" not in row
            if made and row["cell"] in named and row["example"] in examples:
                self.known.learn(self.key(Job(named[row["cell"]], examples[row["example"]])), row)

    def run(self, jobs: list[Job]) -> Iterator[tuple[Job, Outcome]]:
        """Yield jobs with their outcomes, those last that others may do meanwhile."""
        left, pace = self._ordered(jobs), inf  # seconds a letter
        while left and time.time() < self.until:
            left = yield from self._found(left)
            group: list[Job] = []
            for _, alike in islice(groupby(left, key=attrgetter("kind")), 1):
                group = list(islice(alike, self.runner.batch))
            started, letters = time.time(), sum(len(job.example.text) for job in group)
            if pace < inf and started + pace * letters > self.until + self.grace:
                return  # would be cut off
            for job, outcome in zip(group, self.runner.several(group) if group else (), strict=True):
                if self.known is not None:
                    self.known.put(self.key(job), job, outcome)
                yield job, outcome
            left, pace = left[len(group) :], min(pace, (time.time() - started) / max(1, letters))

    def _found(self, jobs: Sequence[Job]) -> Generator[tuple[Job, Outcome], None, list[Job]]:
        """Yield the jobs whose outcome is known by now; return the others."""
        if self.known is None:
            return list(jobs)
        self.known.refresh()
        rest = []
        for job in jobs:
            if outcome := self.known.get(self.key(job), job):
                yield job, outcome
            else:
                rest.append(job)
        return rest

    def _ordered(self, jobs: Sequence[Job]) -> list[Job]:
        """Return the jobs in their turn; those that all workers have, from another one on in each."""
        found = sorted((job for job in jobs if job.example.id in self._taken), key=self._turn)
        own, common = ([job for job in found if self.fits(job) == fit] for fit in (False, True))
        first = random.Random(os.getpid()).randrange(len(common) or 1)
        return [*own, *common[first:], *common[:first]]

    def _turn(self, job: Job) -> tuple[object, ...]:
        """Cell by cell; what others may know later, what is answered at equal length together."""
        asks = bool(job.example.query)
        elsewhere = asks if job.cell.catalyst == BY_TASK else not asks
        size = job.example.new_tokens, len(job.example.text)
        return job.cell.name, elsewhere, job.recipe.format, *size

    def key(self, job: Job) -> str:
        """Name what is done: the same for two jobs if and only if they compute the same answer."""
        recipe = job.recipe
        if self.fits(job):
            return f"{job.example.id} whole {recipe.format}"
        told = {name: value for name, value in recipe.describe().items() if name not in NAMES}
        how = {"policy": recipe.preset.policy, "mode": asdict(recipe.mode()), **told}
        return f"{job.example.id} {json.dumps(how, sort_keys=True)}"

    def fits(self, job: Job) -> bool:
        """Say whether the whole prompt and its answer stay in the pot, with room for any catalyst."""
        recipe, example = job.recipe, job.example
        if recipe.mode().positions == "grouped" or recipe.mode().prompt == "passages":
            return False
        if not recipe.preset.sized:
            return True
        if len(example.text) > LETTERS * recipe.config.capacity:
            return False
        if example.id not in self._counts:
            self._counts[example.id] = needs(example, self.runner.engine.tokenizer.encode)
        return self._counts[example.id] <= recipe.config.capacity


def needs(example: Example, encode: Callable[[str], Sequence[int]]) -> int:
    """Return the entries that a whole prompt, its answer and the longest catalyst take, or a few more."""
    catalysts = max(len(encode(text)) for text in (*CATALYSTS.values(), example.query or example.question))
    prompt = len(encode(example.text)) + len(encode(example.question))
    return prompt + example.new_tokens + catalysts + AROUND


def taken(examples: Sequence[Example], rows: float, longest: float, share: tuple[int, int]) -> set[str]:
    """Return the names of one share's examples; shares have texts of every length."""
    found = places(examples)
    mine = [one for one in examples if found[one.id] < rows and len(one.text) <= longest]
    number, of = share
    return {one.id for one in sorted(mine, key=lambda one: len(one.text))[number::of]}


def places(examples: Sequence[Example]) -> dict[str, int]:
    """Return the place of every example among those of its task's part, in an order that a hash draws."""
    seen: dict[object, int] = {}
    found = {}
    for example in sorted(examples, key=lambda one: hashlib.sha256(f"rows {one.id}".encode()).digest()):
        part = example.facts.get("task")
        found[example.id] = seen[part] = seen.get(part, -1) + 1
    return found
