"""Runs read back from their folders, which of them may stand in one report, and means of their scores.

Within a task all but the cells must be the same, and across tasks the model, the seed and the versions; `mix`
allows more. What `mix` never allows is rows that settings were chosen on beside rows that are to be reported.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any, Self

from infinipot.errors import ConfigError, InputError
from infinipot.eval.estimates import Estimate, estimate, macro
from infinipot.eval.folder import Row, key, read_manifest, read_rows
from infinipot.eval.grid import BY_TASK
from infinipot.eval.manifest import Manifest, differences
from infinipot.eval.tasks.task import ALL, TUNE, BadRow
from infinipot.reading.catalyst import QUESTION

OF_TASK = ("task", "options", "examples")  # may differ between runs of different tasks
KNOWN, UNKNOWN = "known", "unknown"
BOTH_HALVES = "Rows of both halves: a setting chosen on some of these rows looks better here than it is."
UNUSED = "not used"  # by the choice of slots: what the recipe keeps is the same for every question
AT_THE_END = "nothing until the prompt ends"  # what such a recipe keeps is chosen with the question in sight


@dataclass(frozen=True)
class Run:
    """A run as its folder has it."""

    manifest: Manifest
    rows: list[Row]


@dataclass(frozen=True)
class Series:
    """The rows of one cell, under one name in every table and plot."""

    name: str
    cell: dict[str, Any]  # every parameter
    rows: list[Row]

    def scores(self, **facts: Any) -> list[float]:
        """Return the scores of the rows with these facts."""
        found = (row for row in self.rows if row["score"] is not None)
        return [row["score"] for row in found if all(row["facts"].get(k) == v for k, v in facts.items())]

    def by_example(self) -> dict[str, float]:
        """Return every score by its example's name."""
        return {row["example"]: row["score"] for row in self.rows if row["score"] is not None}

    @property
    def question(self) -> str:
        """Whether the question was known while the text was read: KNOWN, UNKNOWN, or UNUSED."""
        catalyst = self.cell.get("catalyst")
        if self.cell.get("bounds") == AT_THE_END:
            return KNOWN
        return UNUSED if not catalyst else KNOWN if catalyst in (QUESTION, BY_TASK) else UNKNOWN

    def mean(self, groups: Iterable[Mapping[str, Any]]) -> Estimate | None:
        """Return the mean over the means of some groups of rows, each known by its facts."""
        return macro([self.scores(**facts) for facts in groups])


@dataclass(frozen=True)
class Section:
    """One task with its options: what can be compared."""

    task: str
    title: str
    series: list[Series]
    notes: list[str]
    bad: list[str]

    @property
    def most(self) -> int:
        """How many examples the cell with the most of them has run on."""
        return max((len(one.rows) for one in self.series), default=0)

    def label(self, one: Series) -> str:
        """Name a series, and how much of the series there is where that is not all."""
        return one.name if len(one.rows) == self.most else f"{one.name} ({len(one.rows)} of {self.most})"

    @property
    def finished(self) -> Self:
        """The series that can be compared as they are: they have all run on as many examples."""
        return replace(self, series=[one for one in self.series if len(one.rows) == self.most])


def load(paths: Sequence[Path], mix: bool = False) -> tuple[list[Run], list[str]]:
    """Read runs; return with them what differs between them, which is refused unless `mix` allows it."""
    runs = [Run(read_manifest(path), read_rows(path)) for path in dict.fromkeys(paths)]
    if not runs:
        raise InputError("nothing to report: give the folder of a run")
    _check_parts(runs)
    found = list(dict.fromkeys(text for run in runs[1:] for text in _apart(runs, run)))
    if found and not mix:
        problem = f"these runs differ in {', '.join(found[:3])}{' and more' if len(found) > 3 else ''}"
        raise ConfigError(problem, field="mix", remedy="report them apart, or allow it with `mix`")
    return runs, found


def part(run: Run) -> str:
    """Return which half of a set a run is of: tune, report, or all."""
    options = run.manifest["options"]
    return str(options.get("part") or options.get("half") or ALL)


def _check_parts(runs: Sequence[Run]) -> None:
    """Refuse rows that settings were chosen on beside others, and a half of a task beside the whole."""
    found: dict[str, set[str]] = defaultdict(set)
    for run in runs:
        found[run.manifest["task"]].add(part(run))
    every = set().union(*found.values())
    mixed = next((parts for parts in found.values() if len(parts) > 1), every if TUNE in every else set())
    if len(mixed) > 1:
        problem = f"these runs are of different halves: {' and '.join(sorted(mixed))}"
        raise ConfigError(problem, field="part", remedy="settings are chosen on one half: report them apart")


def _apart(runs: Sequence[Run], run: Run) -> list[str]:
    """In what a run differs from the first of its task, or from the first of all."""
    same = next(one for one in runs if one.manifest["task"] == run.manifest["task"])
    if same is not run:
        return differences(same.manifest, run.manifest)
    first, mine = ({**one.manifest, **dict.fromkeys(OF_TASK)} for one in (runs[0], run))
    return differences(first, mine, cells=False)


def sections(runs: Sequence[Run]) -> list[Section]:
    """Put runs of the same task and options together, in the order given."""
    groups: dict[str, list[Run]] = defaultdict(list)
    for run in runs:
        told = {**run.manifest["options"], "examples": run.manifest["examples"]["sha256"]}
        groups[f"{run.manifest['task']} {told}"].append(run)
    tasks = Counter(group[0].manifest["task"] for group in groups.values())
    return [_section(group, tasks[group[0].manifest["task"]] > 1) for group in groups.values()]


def _section(runs: list[Run], several: bool) -> Section:
    first = runs[0].manifest
    title = f"{first['task']}, {stated(first['options'], ', ')}" if several else first["task"]
    found: dict[str, Series] = {}
    repeated = 0
    for run in runs:
        for name, cell in run.manifest["cells"].items():
            label = " · ".join([name, *_apart_words(runs, run)])
            rows = [row for row in run.rows if row["kind"] == "example" and row["cell"] == name]
            there = found.setdefault(label, Series(label, cell, []))
            known = set(map(key, there.rows))
            new = [row for row in rows if key(row) not in known]
            there.rows.extend(new)
            repeated += len(rows) - len(new)
    series, count = list(found.values()), first["examples"]["count"]
    short = (one for one in series if len(one.rows) < count)
    both = part(runs[0]) == ALL
    notes = [BOTH_HALVES] if both else [f"Rows of the half `{part(runs[0])}`."]
    notes += [f"{one.name}: only {len(one.rows)} of {count} examples have run" for one in short]
    wrong = ((one.name, len(one.rows) - len(one.scores())) for one in series)
    notes += [f"{name}: {n} examples ended in an error and have no score" for name, n in wrong if n]
    if repeated:
        notes.append(f"{repeated} rows are in more than one of the folders and are counted once")
    bad = dict.fromkeys(text for run in runs for text in _bad(run.rows))
    return Section(first["task"], title, series, notes, list(bad))


def _apart_words(runs: list[Run], run: Run) -> list[str]:
    """What tells a run from the others of its section, where they are mixed."""
    model = run.manifest["model"]
    words = {
        "versions": f"versions {stated(run.manifest['versions'], ', ')}",
        "seed": f"seed {run.manifest['seed']}",
        "model": f"{model['name']} {model['dtype']} {model['format']} {model['weights'].split(':')[1][:6]}",
    }
    first = runs[0].manifest
    return [words[name] for name in words if any(one.manifest[name] != first[name] for one in runs)]


def stated(options: Mapping[str, Any], between: str) -> str:
    """Write named values in one line, but those that say nothing."""
    told = {name: value for name, value in options.items() if value not in (None, [])}
    words = (f"{name} {','.join(map(str, v)) if isinstance(v, list) else v}" for name, v in told.items())
    return between.join(words)


def _bad(rows: Iterable[Row]) -> list[str]:
    found = (row for row in rows if row["kind"] == "bad")
    return [str(BadRow(row["file"], row["line"], row["reason"])) for row in found]


def summary(rows: Sequence[Row]) -> dict[str, Any]:
    """Return a run in short: a mean a cell, and what went wrong."""
    examples = [row for row in rows if row["kind"] == "example"]
    names = dict.fromkeys(row["cell"] for row in examples)
    return {
        "cells": [_summed(name, [row for row in examples if row["cell"] == name]) for name in names],
        "errors": [f"{row['cell']}, {row['example']}: {row['error']}" for row in rows if row.get("error")],
        "bad": _bad(rows),
    }


def _summed(name: str, rows: list[Row]) -> dict[str, Any]:
    scores = [row["score"] for row in rows if row["score"] is not None]
    seconds = [sum(row["seconds"].values()) for row in rows if "seconds" in row]
    found = estimate(scores)
    return {
        "cell": name,
        "score": found and round(found.mean, 6),
        "interval": found and [round(found.low, 6), round(found.high, 6)],
        "rows": len(rows),
        "errors": len(rows) - len(scores),
        "seconds": round(fmean(seconds), 4) if seconds else 0.0,
    }
