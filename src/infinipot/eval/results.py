"""Runs read back from their folders, which of them may stand in one report, and means of their scores.

Within a task all but the cells must be the same, and across tasks the model, the seed and the versions; `mix`
allows more. Intervals are of 95%: Wilson's for right-or-wrong scores, a seeded bootstrap for others.
"""

import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import sqrt
from pathlib import Path
from statistics import fmean
from typing import Any, Self

from infinipot.errors import ConfigError, InputError
from infinipot.eval.folder import Row, key, read_manifest, read_rows
from infinipot.eval.manifest import Manifest, differences
from infinipot.eval.tasks.task import BadRow

OF_TASK = ("task", "options", "examples")  # may differ between runs of different tasks
Z = 1.959964  # of 95%
RESAMPLES = 1000


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

    def mean(self, groups: Iterable[Mapping[str, Any]]) -> "Estimate | None":
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
    notes = [f"{one.name}: only {len(one.rows)} of {count} examples have run" for one in short]
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


@dataclass(frozen=True)
class Estimate:
    """A mean, the interval it lies in, and how many scores it is of."""

    mean: float
    low: float
    high: float
    count: int


def estimate(scores: Sequence[float]) -> Estimate | None:
    """Return the mean of some scores; None where there are none."""
    if scores and set(scores) <= {0.0, 1.0}:
        return Estimate(fmean(scores), *wilson(sum(scores), len(scores)), len(scores))
    return bootstrapped(scores)


def macro(groups: Sequence[Sequence[float]]) -> Estimate | None:
    """Return the mean of the groups' means, as `bootstrapped` does where there are several groups."""
    groups = [group for group in groups if group]
    return bootstrapped(*groups) if len(groups) > 1 else estimate(groups[0] if groups else ())


def bootstrapped(*groups: Sequence[float]) -> Estimate | None:
    """Return the mean of the groups' means, of any numbers; numbers are redrawn within their groups."""
    if not any(groups):
        return None
    source = random.Random(0)
    redrawn = (fmean(fmean(source.choices(g, k=len(g))) for g in groups) for _ in range(RESAMPLES))
    means = sorted(redrawn)
    low, high = means[int(0.025 * RESAMPLES)], means[int(0.975 * RESAMPLES) - 1]
    return Estimate(fmean(map(fmean, groups)), low, high, sum(map(len, groups)))


def wilson(right: float, count: int) -> tuple[float, float]:
    """Wilson's score interval of a share."""
    share, spread = right / count, Z * Z / count
    middle = (share + spread / 2) / (1 + spread)
    half = Z / (1 + spread) * sqrt(share * (1 - share) / count + spread / (4 * count))
    # Rounding would leave the share itself out where it is 1: of 24 of 24, say.
    return max(0.0, min(share, middle - half)), min(1.0, max(share, middle + half))
