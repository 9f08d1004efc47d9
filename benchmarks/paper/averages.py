"""Figures 2 and 3 over several rows, a text and a question each: their findings, averaged.

Works on the documents that `Findings.json` makes, so that rows may have been read on different days.
Does not know how sure a mean over few rows is: the interval is handed in by whoever judges that.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from infinipot.errors import InputError
from infinipot.inspect.measures import Floats

CAP, WITH_NOVELTY = "cap-only question", "infinipot question"
"""The two recipes that Figure 3 compares, by the names that `infinipot inspect` gives them."""

Document = Mapping[str, Any]
Interval = Callable[[Sequence[float]], tuple[float, float]]


@dataclass(frozen=True)
class Mean:
    """A mean over rows, and the interval it lies in."""

    mean: float
    low: float
    high: float
    rows: int


@dataclass(frozen=True)
class Curve:
    """Means cycle by cycle; a later cycle may be one that only the longer rows have."""

    cycles: list[int]
    means: list[Mean]

    def json(self) -> dict[str, Any]:
        """One list for each number."""
        names = ("mean", "low", "high", "rows")
        return {"cycles": self.cycles, **{name: [getattr(m, name) for m in self.means] for name in names}}


@dataclass(frozen=True)
class Averages:
    """What is drawn. Rows differ in length: frequencies are by parts of a text, the rest is by cycles."""

    rows: int
    layers: tuple[int, ...]
    hits: dict[str, Mean]
    hits_by_layer: dict[str, list[Mean]]
    gains: dict[str, Mean]  # of the hit rate over the first recipe's, row by row
    frequency: dict[str, Floats]  # [L, bins]
    overlap: Curve  # of CAP and WITH_NOVELTY
    overlaps: list[tuple[list[int], list[float]]]  # the same of each row
    overlap_in_the_end: Mean | None  # after each row's last cycle; None where no cycles compare
    novelty: dict[str, Curve]  # summed over what a head holds, nats
    best: dict[str, Curve]  # the most there was
    share: dict[str, Curve]  # of the most there was

    def json(self) -> dict[str, Any]:
        """JSON-ready: every number that is drawn."""
        hits = {
            name: {
                **asdict(mean),
                "layers": [asdict(one) for one in self.hits_by_layer[name]],
                **({"gain": asdict(self.gains[name])} if name in self.gains else {}),
            }
            for name, mean in self.hits.items()
        }
        return {
            "rows": self.rows,
            "layers": list(self.layers),
            "hit_rate": hits,
            "frequency_by_position": {name: np.round(v, 4).tolist() for name, v in self.frequency.items()},
            "overlap": {
                "recipes": [CAP, WITH_NOVELTY],
                **self.overlap.json(),
                "in_the_end": self.overlap_in_the_end and asdict(self.overlap_in_the_end),
            },
            "novelty": {
                name: {
                    "held": curve.json(),
                    "global": self.best[name].json(),
                    "share": self.share[name].json(),
                }
                for name, curve in self.novelty.items()
            },
        }


def averages(rows: Sequence[Document], interval: Interval) -> Averages:
    """Average the findings of rows that were read with the same recipes; each has a global run."""
    if not rows:
        raise InputError("there is nothing to average: no row was read yet")
    names = [recipe["name"] for recipe in rows[0]["recipes"]]
    hits = {name: np.array([_of(row, name)["hit_rate"]["layers"] for row in rows]) for name in names}
    gains = {name: (hits[name] - hits[names[0]]).mean(1) for name in names[1:]}
    held = {name: [_of(row, name)["novelty"] for row in rows] for name in names}
    overlaps = [_overlap(row) for row in rows]
    ends = [values[-1] for _, values in overlaps if values]

    def curves(value: Callable[[Document], list[float]]) -> dict[str, Curve]:
        return {name: _curve([(n["cycles"], value(n)) for n in held[name]], interval) for name in names}

    return Averages(
        len(rows),
        tuple(rows[0]["layers"]),
        {name: mean_of(values.mean(1).tolist(), interval) for name, values in hits.items()},
        {name: [mean_of(layer.tolist(), interval) for layer in values.T] for name, values in hits.items()},
        {name: mean_of(values.tolist(), interval) for name, values in gains.items()},
        _frequency([row["frequency_by_position"] for row in rows]),
        _curve(overlaps, interval),
        overlaps,
        mean_of(ends, interval) if ends else None,
        curves(lambda n: n["held"]),
        curves(lambda n: n["global"]),
        curves(lambda n: [a / b if b else 1.0 for a, b in zip(n["held"], n["global"], strict=True)]),
    )


def _of(row: Document, name: str) -> Any:
    return next(recipe for recipe in row["recipes"] if recipe["name"] == name)


def _overlap(row: Document) -> tuple[list[int], list[float]]:
    pair = next((found for found in row["overlaps"] if found["recipes"] == [CAP, WITH_NOVELTY]), None)
    return (pair["cycles"], pair["overlap"]) if pair else ([], [])


def _frequency(found: Sequence[Mapping[str, Any]]) -> dict[str, Floats]:
    return {name: np.mean([row[name] for row in found], axis=0) for name in found[0]}


def _curve(rows: Iterable[tuple[Sequence[int], Sequence[float]]], interval: Interval) -> Curve:
    by_cycle: dict[int, list[float]] = defaultdict(list)
    for cycles, values in rows:
        for cycle, value in zip(cycles, values, strict=True):
            by_cycle[cycle].append(value)
    cycles = sorted(by_cycle)
    return Curve(cycles, [mean_of(by_cycle[cycle], interval) for cycle in cycles])


def mean_of(values: Sequence[float], interval: Interval) -> Mean:
    """A mean, as sure as `interval` says."""
    low, high = interval(values)
    mean, low, high = (round(float(number), 4) for number in (np.mean(values), low, high))
    return Mean(mean, low, high, len(values))
