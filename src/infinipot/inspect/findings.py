"""Everything the analyses say about some runs of one text, as numbers that a page and a file can show."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from infinipot.inspect import measures
from infinipot.inspect.measures import Floats
from infinipot.inspect.run import Run, Whole
from infinipot.reading.recording import Mask, Record

BINS = 64  # parts of the text in which kept tokens are counted


@dataclass(frozen=True)
class Pair:
    """What two pots have in common, cycle by cycle."""

    names: tuple[str, str]
    cycles: list[int]  # of the first of them
    tokens: list[int]  # read so far
    overlap: Floats  # [n, L, H]

    def json(self) -> dict[str, Any]:
        """What is told of the pair."""
        overlap = _r(self.overlap.mean((1, 2)))
        return {"recipes": [*self.names], "cycles": self.cycles, "tokens": self.tokens, "overlap": overlap}


@dataclass(frozen=True)
class Novelty:
    """Summed novelty of what a run holds, against the most there was."""

    cycles: list[int]  # the one after the last is the end, where text was read after the last
    tokens: list[int]
    held: Floats  # [n, L, H]
    best: list[float]  # [n]


@dataclass(frozen=True)
class Findings:
    """The analyses of section 3.4; `hits` and the global frequency need a run with the whole text."""

    runs: Sequence[Run]
    layers: tuple[int, ...]
    hits: dict[str, Floats]  # [L, H]
    frequency: dict[str, Floats]  # [L, bins]
    novelty: dict[str, Novelty]
    pairs: list[Pair]
    measured_whole: bool  # novelty is the one that a run with the whole text found

    def json(self) -> dict[str, Any]:
        """The document of `--json`, and of report.json."""
        first = self.runs[0].record
        return {
            "tokens": len(first.ids),
            "opening": first.about.get("opening", 0),
            "layers": list(self.layers),
            "heads": first.dropped.shape[1],
            "recipes": [self._run(run) for run in self.runs],
            "overlaps": [pair.json() for pair in self.pairs],
            "frequency_by_position": {name: _r(found) for name, found in self.frequency.items()},
        }

    def _run(self, run: Run) -> dict[str, Any]:
        record, hits, novelty = run.record, self.hits.get(run.name), self.novelty[run.name]
        rate = hits is not None and {"mean": _r(hits.mean()), "layers": _r(hits.mean(1)), "heads": _r(hits)}
        return {
            **record.about,
            "cycles": record.cycles,
            "held": round(float(record.held().sum(-1).mean()), 1),
            "seconds": run.seconds,
            "recording_memory_bytes": run.recording_bytes,
            "hit_rate": rate or None,
            "novelty": {
                "cycles": novelty.cycles,
                "tokens": novelty.tokens,
                "held": _r(novelty.held.mean((1, 2))),
                "global": _r(np.array(novelty.best)),
                "measured": "with the whole text" if self.measured_whole else "while reading",
            },
        }


def findings(runs: Sequence[Run], whole: Whole | None) -> Findings:
    """Analyse runs of one text."""
    layers = runs[0].record.layers
    if whole is not None:  # a layer that sees far in a small pot may be a window when nothing is dropped
        layers = tuple(layer for layer in layers if layer in whole.layers)
    scores = None if whole is None else whole.scores[[whole.layers.index(layer) for layer in layers]]
    masks = {run.name: _held(run.record, layers) for run in runs}
    hits = {} if scores is None else {name: measures.hit_rate(held, scores) for name, held in masks.items()}
    frequency = {name: measures.retention(held, BINS).mean(1) for name, held in masks.items()}
    if scores is not None:
        best = measures.top(scores, masks[runs[0].name].sum(-1))
        frequency["global scoring"] = measures.retention(best, BINS).mean(1)
    scale = runs[0].record.novelty if whole is None else whole.novelty
    novelty = {run.name: _novelty(run.record, scale) for run in runs}
    return Findings(runs, layers, hits, frequency, novelty, _pairs(runs), whole is not None)


def _held(record: Record, layers: Sequence[int]) -> Mask:
    return record.held()[[record.layers.index(layer) for layer in layers]]


def _novelty(record: Record, novelty: Floats) -> Novelty:
    moments = measures.cycles(record)
    tokens = [record.seen(cycle) for cycle in moments]
    counts = [float(record.held(cycle).sum(-1).mean()) for cycle in moments]
    best = [measures.global_novelty(novelty, *pair) for pair in zip(tokens, counts, strict=True)]
    last = record.cycles + (not record.cycles or record.seen(record.cycles) < len(record.ids))
    numbers = [last if cycle is None else cycle for cycle in moments]
    return Novelty(numbers, tokens, measures.held_novelty(record, novelty, moments), best)


def _pairs(runs: Sequence[Run]) -> list[Pair]:
    """Runs whose cycles come at the same tokens, so that they compare."""
    found = []
    for one, other in combinations(runs, 2):
        tokens, overlap = measures.overlaps(one.record, other.record)
        if len(tokens) > 1:
            cycles = (np.searchsorted(one.record.tokens, tokens) + 1).tolist()
            found.append(Pair((one.name, other.name), cycles, tokens, overlap))
    return found


def _r(values: Any) -> Any:
    return np.round(np.asarray(values, np.float64), 4).tolist()
