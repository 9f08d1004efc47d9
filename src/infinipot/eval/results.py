"""Runs read back from their folders, and which of them may stand in one report.

Runs of different tasks may; within a task everything but the cells must be the same, and across tasks
the model, the seed and the versions. What differs is named, and `mix` allows it, said on the page.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from infinipot.errors import ConfigError, InputError
from infinipot.eval.folder import Row, key, read_manifest, read_rows
from infinipot.eval.manifest import Manifest, differences
from infinipot.eval.stats import estimate
from infinipot.eval.tasks.task import BadRow

OF_TASK = ("task", "options", "examples")  # may differ between runs of different tasks
SETTINGS = ("versions", "seed", "model")


@dataclass(frozen=True)
class Run:
    """One folder."""

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
    def finished(self) -> Section:
        """The series that can be compared as they are: they have all run on as many examples."""
        return replace(self, series=[one for one in self.series if len(one.rows) == self.most])


def load(paths: Sequence[Path], mix: bool = False) -> tuple[list[Run], list[str]]:
    """Read runs; return with them what differs between them, which is refused unless `mix` allows it."""
    runs = [Run(read_manifest(path), read_rows(path)) for path in dict.fromkeys(paths)]
    if not runs:
        raise InputError("nothing to report: give the folder of a run")
    found = list(dict.fromkeys(text for run in runs[1:] for text in _apart(runs, run)))
    if found and not mix:
        problem = f"these runs differ in {', '.join(found[:3])}{' and more' if len(found) > 3 else ''}"
        raise ConfigError(problem, field="mix", remedy="report them apart, or allow it with `mix`")
    return runs, found


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
    tasks = [group[0].manifest["task"] for group in groups.values()]
    return [_section(group, tasks.count(group[0].manifest["task"]) > 1) for group in groups.values()]


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
            known = {key(row) for row in there.rows}
            new = [row for row in rows if key(row) not in known]
            there.rows.extend(new)
            repeated += len(rows) - len(new)
    series, count = list(found.values()), first["examples"]["count"]
    short = (one for one in series if len(one.rows) < count)
    notes = [f"{one.name}: only {len(one.rows)} of {count} examples have run" for one in short]
    wrong = ((one.name, sum(row["score"] is None for row in one.rows)) for one in series)
    notes += [f"{name}: {n} examples ended in an error and have no score" for name, n in wrong if n]
    if repeated:
        notes.append(f"{repeated} rows are in more than one of the folders and are counted once")
    bad = [_bad(row) for run in runs for row in run.rows if row["kind"] == "bad"]
    return Section(first["task"], title, series, notes, list(dict.fromkeys(bad)))


def _apart_words(runs: list[Run], run: Run) -> list[str]:
    """What tells a run from the others of its section, where they are mixed."""
    words = []
    for name in SETTINGS:
        value = run.manifest[name]
        if all(one.manifest[name] == value for one in runs):
            continue
        if name == "model":
            weights = value["weights"].split(":")[1][:6]
            words.append(f"{value['name']} {value['dtype']} {value['format']} {weights}")
        else:
            words.append(f"{name} {stated(value, ', ') if isinstance(value, dict) else value}")
    return words


def stated(options: Mapping[str, Any], between: str) -> str:
    """Write named values in one line, but those that say nothing."""
    told = {name: value for name, value in options.items() if value not in (None, [])}
    words = (f"{name} {','.join(map(str, v)) if isinstance(v, list) else v}" for name, v in told.items())
    return between.join(words)


def _bad(row: Row) -> str:
    return str(BadRow(row["file"], row["line"], row["reason"]))


def summary(rows: Sequence[Row]) -> dict[str, Any]:
    """Return a run in short: a mean a cell, and what went wrong."""
    cells: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        if row["kind"] == "example":
            cells[row["cell"]].append(row)
    wrong = [row for row in rows if row.get("error")]
    return {
        "cells": [_summed(name, found) for name, found in cells.items()],
        "errors": [f"{row['cell']}, {row['example']}: {row['error']}" for row in wrong],
        "bad": [_bad(row) for row in rows if row["kind"] == "bad"],
    }


def _summed(name: str, rows: list[Row]) -> dict[str, Any]:
    found = estimate([row["score"] for row in rows if row["score"] is not None])
    seconds = [sum(row["seconds"].values()) for row in rows if "seconds" in row]
    return {
        "cell": name,
        "score": found and round(found.mean, 6),
        "interval": found and [round(found.low, 6), round(found.high, 6)],
        "rows": len(rows),
        "errors": sum(row["score"] is None for row in rows),
        "seconds": round(fmean(seconds), 4) if seconds else 0.0,
    }
