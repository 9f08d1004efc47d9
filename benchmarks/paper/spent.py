"""How a pot spends its slots where no question is known: candidates beside the default, half by half.

Works on the folders that `grids.py` makes; yields lines of Markdown. What was not run is not there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from infinipot.eval.folder import MANIFEST
from infinipot.eval.results import Series, load, sections
from infinipot.eval.tables import joined
from infinipot.eval.tasks.task import REPORT, TUNE, half
from infinipot.reading.catalyst import GENERAL
from paper.beside import difference
from paper.models import marked, marked_keys
from paper.ours import enough, mean_of
from slots import FACTS

USUAL, POOLED = "infinipot 4096 units=slots general", "candidate 4096 pool=15 novelty_pool=15"
BOTH = f'"{GENERAL} {FACTS}"'
CANDIDATES = {
    "whole sentences, the default now": "infinipot 4096 general",
    "novelty pooled too, both over 15 slots, a catalyst that asks for facts": f'{POOLED} "{FACTS}"',
    "the same, one ranking by both scores": f'{POOLED} join=sum "{FACTS}"',
    "pooled so, two catalysts at once": f"{POOLED} {BOTH}",
    "the same, one ranking": f"{POOLED} join=sum {BOTH}",
}
Sets = Mapping[str, tuple[str, Mapping[str, Series]]]  # by title, what is asked and its cells


def spent(results: Path, model: str) -> Iterator[str]:
    """Yield a table: how far each candidate is from the default on every set."""
    found = dict(_sets(results, model))
    if not found:
        return
    yield f"| question unknown | {' | '.join(found)} |"
    yield "|---" * (1 + len(found)) + "|"
    before = " | ".join(_level(task, cells[USUAL]) for task, cells in found.values())
    yield f"| slot by slot, the default before | {before} |"
    for label, cell in CANDIDATES.items():
        told = [_beside(task, cells, cell) for task, cells in found.values()]
        if any(told):
            yield f"| {label} | {' | '.join(told)} |"
    yield ""


def sets_of(model: str, runs: str = "") -> dict[str, tuple[str, str]]:
    """Return the folder of every set by its title, and which half of it: of the grids, or so begun."""
    titles = {"essays": "keys in essays", "facts": "facts", "longbench": "LongBench"}
    if runs:
        halves = [(one, part) for one in titles for part in (TUNE, REPORT)]
        return {f"{titles[one]}, `{part}`": (f"{runs}{one}-{part}", "") for one, part in halves}
    tuned = f"defaults-{model}"
    return {
        **{f"keys in essays, `{part}`": ("report-half/essays-more", part) for part in (TUNE, REPORT)},
        f"facts, `{TUNE}`": (f"{tuned}/facts", ""),
        f"facts, `{REPORT}`": ("report-half/facts-report", ""),
        f"LongBench, `{TUNE}`": (f"{tuned}/longbench", ""),
        f"LongBench, `{REPORT}`": ("report-half/longbench", ""),
    }


def cells_of(folder: Path, part: str) -> dict[str, Series]:
    """Return the cells of a run that have enough rows, of a half where one is named."""
    if not (folder / MANIFEST).exists():
        return {}
    (section,) = sections(load([folder])[0])
    every = joined(section).series
    return {one.name: _half(one, part) for one in every if enough(one, every)}


def _sets(results: Path, model: str) -> Iterator[tuple[str, tuple[str, Mapping[str, Series]]]]:
    for title, (name, part) in sets_of(model).items():
        cells = cells_of(results / name, part)
        if USUAL in cells and cells.keys() & set(CANDIDATES.values()):
            yield title, (title.partition(",")[0], cells)


def _half(one: Series, part: str) -> Series:
    rows = [row for row in one.rows if part in ("", half(row["example"]))]
    return Series(one.name, one.cell, rows)


def _level(task: str, one: Series) -> str:
    scores = one.scores()
    if task == "LongBench":
        return f"{mean_of(scores)}, {len(scores)} rows"
    return f"{sum(scores):.0f} of {len(scores)}"


def _beside(task: str, cells: Mapping[str, Series], cell: str) -> str:
    one = cells.get(cell)
    if not one or not one.rows:
        return ""
    less = marked_keys(one, cells[USUAL]) if "keys" in task else marked(difference(one, cells[USUAL]))
    return f"{_level(task, one)}, {less}"
