"""A small fixed set measured again, beside the last one that was kept: has a change cost quality, or time?

    python benchmarks/nightly.py --out nightly --json     # some minutes on two CPU cores
    python benchmarks/nightly.py --out nightly --keep     # the next one is compared with this one
    python benchmarks/nightly.py --out nightly --data DIR # with questions about facts; DIR holds facts, books

`smollm2` on a CPU in float32: pass keys in noise with truncation for comparison, and in the demo's chapters
of Moby Dick, the question known and unknown; with `--data` questions about facts planted in books, with
recall and without. The kept run is in docs/results/nightly, a folder a set; examples are the same every time,
so answers are compared one by one. The exit status is 1 where a cell lost more than chance explains, or where
reading takes more than `--slower` times as long.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from infinipot.engine import open_engine
from infinipot.eval.estimates import Estimate, paired
from infinipot.eval.evaluate import Evaluation, Workers, evaluate
from infinipot.eval.folder import MANIFEST, ROWS, Row, read_rows
from infinipot.eval.grid import Grid
from infinipot.eval.tasks.task import make

ROOT = Path(__file__).parents[1]
KEPT = ROOT / "docs" / "results" / "nightly"
PROSE = ROOT / "src" / "infinipot" / "cli" / "moby_dick.md.xz"
KEYS: dict[str, Any] = {"lengths": "1k,2k", "depths": "0.1,0.5,0.9"}
SEED, CAPACITY = 77, 512
KINDS = ("question", "general")
NOISE = Grid(("infinipot", "truncate"), (CAPACITY,), KINDS)
FACTS = Grid(("infinipot",), (4 * CAPACITY,), ("general",), {"recall": (0, CAPACITY)})
EVERY = "all cells"


@dataclass(frozen=True)
class Change:
    """A cell now and before, on the examples both have."""

    cell: str
    rows: int
    right: tuple[float, float]  # before and now, in rows
    difference: Estimate | None  # of scores
    lost: list[str]  # examples that were right and are wrong
    gained: list[str]
    reworded: int  # examples whose answer is another text with the same score
    seconds: tuple[float, float]  # a row's reading, before and now, medians

    @property
    def worse(self) -> bool:
        """Whether more was lost than chance explains."""
        return self.difference is not None and self.difference.high < 0

    @property
    def slowdown(self) -> float:
        """How many times as long reading takes."""
        before, now = self.seconds
        return now / before if before else 1.0

    def json(self) -> dict[str, Any]:
        """JSON-ready."""
        less = self.difference
        return {
            "cell": self.cell,
            "rows": self.rows,
            "score_before": self.right[0],
            "score_now": self.right[1],
            "difference": less and {"mean": less.mean, "low": less.low, "high": less.high},
            "lost": self.lost,
            "gained": self.gained,
            "reworded": self.reworded,
            "reading_s_before": self.seconds[0],
            "reading_s_now": self.seconds[1],
            "worse": self.worse,
        }


def measure(out: Path, args: argparse.Namespace) -> None:
    """Run the sets; rows that are there stay, so a run that was stopped goes on."""
    workers = Workers(lambda: open_engine(args.model, "cpu", "float32", threads=args.threads))
    for name, (task, options, grid) in sets(args.data).items():
        for step in evaluate(Evaluation(make(task, options, SEED), grid, out / name, SEED), workers):
            print(f"\r{name}: {step.done} of {step.total} rows", end="", file=sys.stderr)
        print(file=sys.stderr)


def sets(data: Path | None) -> dict[str, tuple[str, dict[str, Any], Grid]]:
    """Return every set by its name: its task, the task's options, and its cells."""
    found = {
        "noise": ("passkey", {**KEYS, "trials": 2}, NOISE),
        "prose": (
            "needle",
            {**KEYS, "trials": 4, "hay": str(PROSE)},
            Grid(("infinipot",), (CAPACITY,), KINDS),
        ),
    }
    if data:
        books = {
            "data": data / "facts",
            "hay": str(data / "books"),
            "lengths": "4k",
            "texts": 2,
            "part": "tune",
        }
        found["facts"] = ("facts", books, FACTS)
    return found


def rows_of(folder: Path) -> list[Row]:
    """Return the rows of every set in a folder; a cell's name begins with its set's."""
    names = sorted(path.parent.name for path in folder.glob(f"*/{ROWS}"))
    every = ((name, row) for name in names for row in read_rows(folder / name))
    return [{**row, "cell": f"{name}: {row['cell']}"} for name, row in every if row["kind"] == "example"]


def compare(before: Sequence[Row], now: Sequence[Row]) -> list[Change]:
    """Compare two runs cell by cell, and all cells together."""
    old, new = _scored(before), _scored(now)
    both = [name for name in new if name in old]
    cells = dict.fromkeys(cell for cell, _ in both)
    changes = [_change(cell, [n for n in both if n[0] == cell], old, new) for cell in cells]
    return [*changes, _change(EVERY, both, old, new)] if len(changes) > 1 else changes


def _scored(rows: Sequence[Row]) -> dict[tuple[str, str], Row]:
    examples = (row for row in rows if row["kind"] == "example" and row["score"] is not None)
    return {(row["cell"], row["example"]): row for row in examples}


def _change(cell: str, names: list[tuple[str, str]], old: dict[Any, Row], new: dict[Any, Row]) -> Change:
    moved = {name: new[name]["score"] - old[name]["score"] for name in names}
    told = {name: f"{name[0]}, {name[1]}" if cell == EVERY else name[1] for name in names}
    scores = ({str(name): rows[name]["score"] for name in names} for rows in (new, old))
    return Change(
        cell,
        len(names),
        (sum(old[name]["score"] for name in names), sum(new[name]["score"] for name in names)),
        paired(*scores),
        [told[name] for name in names if moved[name] < 0],
        [told[name] for name in names if moved[name] > 0],
        sum(not moved[name] and old[name]["prediction"] != new[name]["prediction"] for name in names),
        (_seconds(old, names), _seconds(new, names)),
    )


def _seconds(rows: dict[Any, Row], names: list[tuple[str, str]]) -> float:
    return round(median(rows[name]["seconds"]["read"] for name in names), 4)


def problems(changes: Sequence[Change], slower: float) -> list[str]:
    """Say what got worse, a line each; seconds count over all cells together."""
    found = [f"{one.cell}: {len(one.lost)} lost, {len(one.gained)} gained" for one in changes if one.worse]
    if changes and (by := changes[-1].slowdown) > slower:
        found.append(f"reading takes {by:.2f} times as long (allowed: {slower:g})")
    return found


def shown(changes: Sequence[Change]) -> str:
    """A line a cell."""
    lines = [f"{'cell':32} {'before':>6} {'now':>6} {'lost':>5} {'gained':>6} {'reworded':>8} {'reading':>8}"]
    for one in changes:
        before, now = (f"{100 * right / one.rows:.1f}" for right in one.right)
        counts = f"{len(one.lost):5} {len(one.gained):6} {one.reworded:8}"
        lines.append(f"{one.cell:32} {before:>6} {now:>6} {counts} {one.slowdown:6.2f} x")
    return "\n".join(lines)


def keep(out: Path, kept: Path) -> None:
    """Let a run be what the next one is compared with; a set that was not run stays."""
    for there in (path.parent for path in out.glob(f"*/{ROWS}")):
        (kept / there.name).mkdir(parents=True, exist_ok=True)
        for name in (MANIFEST, ROWS):
            shutil.copyfile(there / name, kept / there.name / name)


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True, help="folder of this run")
    parser.add_argument("--kept", type=Path, default=KEPT, help="folder of the run to compare with")
    parser.add_argument("--keep", action="store_true", help="compare the next run with this one")
    parser.add_argument("--data", type=Path, help="folder of `facts` and `books`: questions about facts too")
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--slower", type=float, default=1.5, help="times as long that reading may take")
    parser.add_argument("--json", action="store_true", help="print exactly one JSON document")
    args = parser.parse_args(words)
    measure(args.out, args)
    before = rows_of(args.kept)
    changes = compare(before, rows_of(args.out)) if before else []
    found = problems(changes, args.slower)
    if args.json:
        told = {"compared": bool(before), "problems": found, "cells": [one.json() for one in changes]}
        print(json.dumps(told, indent=1))
    else:
        print(shown(changes) if before else f"nothing is kept in {args.kept} yet: nothing to compare with")
        print("\n".join(found) or "no cell lost more than chance explains" * bool(before))
    if args.keep:
        keep(args.out, args.kept)
    raise SystemExit(1 if found else 0)


if __name__ == "__main__":
    main()
