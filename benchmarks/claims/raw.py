"""The raw files under `docs/results`, and the few ways in which the documentation counts and averages them.

Means and intervals are those of `infinipot report`: this module computes nothing of its own.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from infinipot.eval.estimates import FEW, Estimate, estimate, macro, over_tasks, paired
from infinipot.eval.results import Series, load, sections
from infinipot.eval.tables import joined
from infinipot.eval.tasks.longbench import descriptions
from paper.beside import by_place, telling
from paper.ours import less_by_task

RESULTS = Path(__file__).parents[2] / "docs" / "results"
POTS = tuple(f"infinipot {size} by-task" for size in (1024, 2048, 8192))  # of other sizes, rows of LongBench
Three = tuple[float, float, float]  # a mean and its interval, times 100


@cache
def document(name: str) -> Any:
    """Return a JSON file."""
    return json.loads((RESULTS / name).read_text("utf-8"))


def clients(load: Any) -> int:
    """How many clients ask short questions in a load test: older code, two fewer, did not write it down."""
    given = load["command"]
    return int(load["fair"].get("clients", int(given[given.index("--clients") + 1]) - 2))


@cache
def rows_of(*names: str) -> Rows:
    """Return the rows of one run, or of several as one report has them."""
    return Rows(*names)


class Rows:
    """The rows of some runs of one task, cell by cell."""

    def __init__(self, *names: str) -> None:
        (self.section,) = sections(load([RESULTS / name for name in names], mix=len(names) > 1)[0])

    @property
    def names(self) -> list[str]:
        """The names of all cells."""
        return [one.name for one in self.section.series]

    def cell(self, name: str) -> Series:
        """Return the rows of a cell; one of several runs is known by how its name begins."""
        return {one.name.partition(" · ")[0]: one for one in self.section.series}[name]

    def right(self, cell: str, without: Collection[str] = (), **facts: Any) -> tuple[int, int]:
        """Return how many answers are right, and of how many."""
        scores = self._scores(cell, without, **facts)
        return round(sum(scores)), len(scores)

    def mean(self, cell: str, without: Collection[str] = (), **facts: Any) -> Three:
        """Return the mean over rows."""
        return three(estimate(self._scores(cell, without, **facts)))

    def _scores(self, cell: str, without: Collection[str], **facts: Any) -> Sequence[float]:
        one = self.cell(cell)
        return replace(one, rows=[row for row in one.rows if row["example"] not in without]).scores(**facts)

    def average(self, cell: str, least: int = 0) -> Three:
        """Return the mean over tasks that have at least so many rows, twins of LongBench-E joined."""
        return three(macro([scores for scores in self.by_task(cell).values() if len(scores) >= least]))

    def less_by_task(self, cell: str, other: str) -> Three:
        """Return by how much a cell is above another over tasks of ten rows or more; none where rows lack."""
        series = {one.name: one for one in joined(self.section).series}
        one, base = series[cell], series[other]
        if len(one.rows) < len(base.rows):
            return 0.0, 0.0, 0.0
        return three(over_tasks(less_by_task(one, base)))

    def parts(self, cell: str) -> Three:
        """Return the mean over the parts as they are in the rows, LongBench-E's apart."""
        names = dict.fromkeys(row["facts"]["task"] for row in self.cell(cell).rows)
        return three(self.cell(cell).mean([{"task": name} for name in names]))

    def by_task(self, cell: str) -> dict[str, list[float]]:
        """Return the scores of each task, twins of LongBench-E joined."""
        found: dict[str, list[float]] = {}
        for row in self.cell(cell).rows:
            if row["score"] is not None:
                found.setdefault(row["facts"]["task"].removesuffix("_e"), []).append(row["score"])
        return found

    def of_few(self, cell: str) -> set[str]:
        """Return the rows of tasks with under ten, by a cell that has all rows."""
        tasks = self.by_task(cell)
        return {
            row["example"]
            for row in self.cell(cell).rows
            if len(tasks[row["facts"]["task"].removesuffix("_e")]) < FEW
        }

    def sparse(self, cell: str) -> bool:
        """Say whether a cell has under ten rows of most tasks."""
        counts = [len(scores) for scores in self.by_task(cell).values()]
        return sum(count < FEW for count in counts) > len(counts) / 2

    def but(self, *tasks: str) -> set[str]:
        """Return the rows of all other tasks."""
        rows = (row for name in self.names for row in self.cell(name).rows)
        return {row["example"] for row in rows if row["facts"]["task"].removesuffix("_e") not in tasks}

    def silent(self, cell: str) -> set[str]:
        """Return the rows of all but question-answering tasks: `by-task` is the general prompt there."""
        known = descriptions()
        tasks = {row["example"]: row["facts"]["task"].removesuffix("_e") for row in self.cell(cell).rows}
        return {example for example, task in tasks.items() if not known[task].asks}

    def less(self, cell: str, other: str, without: Collection[str] = ()) -> Three:
        """Return by how much a cell is above another one, row by row, on the rows both have."""
        return three(paired(self._but(self.cell(cell), without), self.cell(other).by_example()))

    def by_place(self, cell: str, other: str) -> Three:
        """Return by how much a cell finds more keys, each length and depth counted once."""
        return three(by_place(self.cell(cell), self.cell(other)))

    def but_one(self, cell: str, other: str, without: Collection[str] = ()) -> tuple[str, Three]:
        """Return the row that makes most of a difference, and the difference without that row."""
        scores, others = self._but(self.cell(cell), without), self.cell(other).by_example()
        most = telling(scores, others)
        return most, self.less(cell, other, {*without, most})

    def task(self, example: str) -> str:
        """Return the task of a row of LongBench; of LongBench-E as of its twin."""
        rows = (row for name in self.names for row in self.cell(name).rows if row["example"] == example)
        return str(next(rows)["facts"]["task"]).removesuffix("_e")

    @staticmethod
    def _but(one: Series, without: Collection[str]) -> dict[str, float]:
        return {name: score for name, score in one.by_example().items() if name not in without}


def three(found: Estimate | None) -> Three:
    """Return an estimate times 100."""
    assert found is not None
    return 100 * found.mean, 100 * found.low, 100 * found.high


def chance(found: Three) -> bool:
    """Say whether a difference may be chance: its interval has 0 in it."""
    return found[1] <= 0 <= found[2]
