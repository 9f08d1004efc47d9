"""From rows of a benchmark to a folder: `inside.json`, Figures 2 and 3 of each task, and Table 8.

A row is a document with an `aim`: FIGURES rows are `Findings.json` with the task and an id, TABLE rows have
a `Searched.json` in them. Rows come from files, so this needs no model.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from paper import search
from paper.averages import Averages, Document, Interval, averages, mean_of
from paper.figures import figure2, figure3

FIGURES, TABLE = "figures", "table8"


def paper(rows: Sequence[Document], about: Mapping[str, Any], out: Path, interval: Interval) -> Iterator[str]:
    """Write everything that these rows say; yield it in a few lines before pictures are drawn."""
    drawn: dict[str, list[Document]] = {}
    for row in rows:
        if row["aim"] == FIGURES:
            drawn.setdefault(row["task"], []).append(row)
    found = {task: averages(of_task, interval) for task, of_task in drawn.items()}
    if found:
        means = {task: one.json() for task, one in found.items()}
        every = [row for of_task in drawn.values() for row in of_task]
        told = {"about": dict(about), "averages": means, "rows": every}
        written(out / "inside.json", json.dumps(told, ensure_ascii=False) + "\n")
    what = f"{about['model']['name']}, a pot of {about['options']['capacity']:,}"
    sought = [search.read(row["row"]) for row in rows if row["aim"] == TABLE]
    if sought:
        _table(sought, about, what, out, interval)
    yield from _hits(found)
    yield from _sought(sought)
    for task, one in found.items():  # last: numbers are safe where pictures cannot be drawn
        title = f"{what}; {task}, {_counted(drawn[task])}"
        (out / f"figure2-{task}.png").write_bytes(figure2(one, f"Figure 2: {title}"))
        (out / f"figure3-{task}.png").write_bytes(figure3(one, f"Figure 3: {title}"))


def _counted(rows: Sequence[Document]) -> str:
    texts = len({row["text"] for row in rows})
    told = f"{len(rows)} row{'s' if len(rows) > 1 else ''}"
    return told if texts == len(rows) else f"{told} of {texts} texts"


def _table(
    rows: Sequence[search.Searched], about: Mapping[str, Any], what: str, out: Path, interval: Interval
) -> None:
    sides = {"ours": [row.ours.score for row in rows], "theirs": [row.theirs.score for row in rows]}
    told = {
        "about": dict(about),
        "counts": search.counts(rows),
        "f1": {name: asdict(mean_of(scores, interval)) for name, scores in sides.items()},
        "best": [row.id for row in search.ranked(rows)],
        "rows": [row.json() for row in rows],
    }
    written(out / "table8.json", json.dumps(told, ensure_ascii=False) + "\n")
    written(out / "table8.md", search.markdown(rows, f"What two pots held: {what}"))


def _hits(found: Mapping[str, Averages]) -> Iterator[str]:
    for task, one in found.items():
        yield f"\n{task}, {one.rows} rows: hit rate, % (95% interval), gain over the first"
        for name, mean in one.hits.items():
            bounds = f"({100 * mean.low:.1f} to {100 * mean.high:.1f})"
            gain = f"{100 * one.gains[name].mean:+.1f}" if name in one.gains else ""
            yield f"  {name:20} {100 * mean.mean:5.1f} {bounds:16} {gain}".rstrip()
        if end := one.overlap_in_the_end:
            first = 100 * one.overlap.means[0].mean
            last = 100 * end.mean
            yield f"  cap-only and infinipot in common: {first:.1f}% at first, {last:.1f}% in the end"


def _sought(rows: Sequence[search.Searched]) -> Iterator[str]:
    if rows:
        yield "\ntable 8: " + ", ".join(f"{name} {count}" for name, count in search.counts(rows).items())


def written(path: Path, text: str) -> None:
    """Write a file so that it is there whole or not at all."""
    beside = path.with_name(f".{path.name}.new")
    beside.write_text(text, "utf-8")
    beside.replace(path)
