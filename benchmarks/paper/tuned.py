"""Defaults, one change at a time, on the half `tune`: a table of docs/results.md for each model.

Works on the folders `defaults-MODEL` that `grids.py` makes; yields lines of Markdown.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from paper.beside import difference
from paper.models import marked
from paper.ours import Cells, mean_of

PRINTED = "as printed (not pooled, last chunk left)"
CHANGES = {  # of one default, for the table of the half `tune`
    "units=sentences": "whole sentences",
    "pool=1": "scores not pooled",
    "pool=3": "pooled over 3",
    "tail=raw": "the last chunk left as it is",
    "tail=distil": "a text's end distilled",
    "opening=4": "the first 4 slots kept",
    "closing=64": "the last 64 slots kept",
    "novelty=0.25": "novelty 0.25",
}


def defaults(folders: Sequence[Path]) -> Iterator[str]:
    """Yield a table for each model, of the half `tune`: one default changed at a time, and all as printed."""
    for folder in folders:
        grids = {
            name: Cells(folder / name)
            for name in ("longbench", "essays-short", "passkey-short")
            if (folder / name).exists()
        }
        if not grids:
            continue
        columns = [(name, known) for name in grids for known in (True, False)]
        heads = (
            f"{name.removesuffix('-short')}, question {'known' if k else 'unknown, slot by slot'}"
            for name, k in columns
        )
        yield f"| `{folder.name.partition('-')[2]}`, less the defaults | {' | '.join(heads)} |"
        yield "|---" * (1 + len(columns)) + "|"
        yield f"| the defaults | {' | '.join(_level(grids[name], _usual(name, k)) for name, k in columns)} |"
        for change in ("", *CHANGES):
            told = [_change(grids[name], change, _usual(name, k)) for name, k in columns]
            if any(told):
                yield f"| {CHANGES.get(change, PRINTED)} | {' | '.join(told)} |"
        yield ""


def _usual(grid: str, known: bool) -> str:
    asked = "by-task" if grid == "longbench" else "question"
    return f"infinipot 4096 {asked if known else 'units=slots general'}"


def _level(grid: Cells, usual: str) -> str:
    one = grid.series.get(usual)
    scores = one.scores() if one else []
    if not scores:
        return ""
    if grid.run.manifest["task"] != "longbench":
        return f"{sum(scores):.0f} of {len(scores)}"
    return f"{mean_of(scores)}, {len(scores)} rows"


def _change(grid: Cells, change: str, usual: str) -> str:
    printed = usual.replace("infinipot", "infinipot-paper").replace("units=slots ", "")
    name = usual.replace("4096", f"4096 {change}") if change else printed
    name = name.replace("units=sentences units=slots ", "")  # the default where no question is known
    one, base = grid.series.get(name), grid.series.get(usual)
    if not one or not base:
        return ""
    few = len(set(one.by_example()) & set(base.by_example()))
    return marked(difference(one, base)) + (f", {few} rows" if few < len(base.scores()) else "")
