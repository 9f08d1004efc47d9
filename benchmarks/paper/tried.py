"""Every candidate for a pot's slots in one table: by how much it is above single slots on each set.

Candidates were tried in several runs, and each is compared with the single slots of its own run. Works on the
folders in docs/results; yields lines of Markdown. What was not run is not there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from infinipot.eval.results import Series
from infinipot.eval.tasks.task import REPORT, TUNE
from paper.beside import difference
from paper.models import marked, marked_keys
from paper.spent import CANDIDATES, POOLED, USUAL, cells_of, sets_of
from slots import FACTS

ALONE, ASKS = "candidate 4096 general", f'"{FACTS}"'
WHOLE, BUDGETS = "candidate 4096{} sentences=whole {}", "budgeted 5120 keep=3072{} general"
UNLIKE = "unlike 4096{} units=sentences general"
ENDS = "candidate 4096 opening=205 closing=205{} general"
NOW, *GONE_ON = CANDIDATES.values()
TRIED = {  # what changes: how the folders of its runs begin, and its cell
    "whole sentences, the default now": ("", NOW),
    "whole sentences, one ranking by both scores": ("slots/sentences-", WHOLE.format(" join=sum", "general")),
    "whole sentences, one choice for all heads": ("slots/sentences-", WHOLE.format(" heads=all", "general")),
    "whole sentences, a catalyst that asks for facts": ("slots/sentences-", WHOLE.format("", ASKS)),
    "whole sentences, a line's end ends one too": (
        "slots/sentences-",
        "candidate 4096 sentences=lines general",
    ),
    "whole sentences, a tenth reserved at either end": ("slots/ends-", ENDS.format(" units=sentences")),
    "whole sentences, novelty by unlike values": ("slots/unlike-", UNLIKE.format("")),
    "the same, three quarters by novelty": ("slots/unlike-", UNLIKE.format(" novelty=0.75")),
    "unlike values, one choice for all heads": ("slots/unlike-", UNLIKE.format(" heads=all")),
    "the same, three quarters by novelty, one choice": (
        "slots/unlike-",
        UNLIKE.format(" novelty=0.75 heads=all"),
    ),
    "novelty pooled too, both over 15 slots": ("slots/", f"{POOLED} general"),
    "pooled so, novelty by its maximum": ("slots/", f"{POOLED} novelty_pooling=max general"),
    "a catalyst that asks for facts": ("slots/", f"candidate 4096 {ASKS}"),
    "pooled so, and that catalyst (*both*)": ("", GONE_ON[0]),
    "both, one ranking": ("", GONE_ON[1]),
    "both, and the general catalyst beside that one": ("", GONE_ON[2]),
    "the same, one ranking": ("", GONE_ON[3]),
    "scores frozen at birth": ("slots/ways-", "candidate 4096 join=frozen general"),
    "frozen, a catalyst that asks for facts": ("slots/ways-", f"candidate 4096 join=frozen {ASKS}"),
    "maximum over query heads": ("slots/maximum-", ALONE),
    "both, maximum over query heads": ("slots/maximum-", GONE_ON[0]),
    "both, one ranking, maximum over query heads": ("slots/maximum-", GONE_ON[1]),
    "share by surprise": ("slots/ways-", "candidate 4096 share=nats general"),
    "both, share by surprise": ("slots/shares-", f"{POOLED} share=nats {ASKS}"),
    "budgets by head": ("slots/budgets-", BUDGETS.format("")),
    "budgets by layer, by sensitivity": ("slots/sensitivity-", BUDGETS.format(" across=shares")),
    "budgets by layer and head": ("slots/budgets-", BUDGETS.format(" across=layers")),
}
USUALLY = {"slots/maximum-": "slots/ways-"}  # runs whose single slots are another run's
KEYS = tuple(f"keys in essays, `{part}`" for part in (TUNE, REPORT))


def tried(results: Path, model: str) -> Iterator[str]:
    """Yield the table."""
    runs = {name: _cells(results, model, name) for name in {run for run, _ in TRIED.values()}}
    titles = [title for title in sets_of(model) if any(title in found for found in runs.values())]
    if not titles:
        return
    yield f"| less single slots, by rows | keys of 60 | {' | '.join(titles)} |"
    yield "|---" * (2 + len(titles)) + "|"
    for label, (run, cell) in TRIED.items():
        usual = runs[USUALLY.get(run, run)]
        told = [
            _less(runs[run].get(title, {}), usual.get(title, {}), cell, title in KEYS) for title in titles
        ]
        if any(told):
            yield f"| {label} | {_found(runs[run], cell)} | {' | '.join(told)} |"
    yield ""


def _cells(results: Path, model: str, runs: str) -> dict[str, dict[str, Series]]:
    """Return the cells of every set of some runs, by the set's title."""
    found: dict[str, dict[str, Series]] = {}
    for title, (name, part) in sets_of(model, runs).items():
        for folder in (results / name, results / f"{name}-more"):  # cut off, and gone on with
            for cell, one in cells_of(folder, part).items():
                before = found.setdefault(title, {}).get(cell)
                found[title][cell] = replace(one, rows=[*before.rows, *one.rows]) if before else one
    return found


def _less(cells: Mapping[str, Series], usual: Mapping[str, Series], cell: str, keys: bool) -> str:
    """Write a difference, and of how many rows it is."""
    one, base = cells.get(cell), usual.get(ALONE, usual.get(USUAL))
    less = difference(one, base) if one and base else None
    if not one or not base or not less:
        return ""
    return f"{marked_keys(one, base) if keys else marked(less)}, {less.count}"


def _found(cells: Mapping[str, Mapping[str, Series]], cell: str) -> str:
    """Write how many keys of both halves were found, where both were asked for."""
    halves = [cells.get(title, {}).get(cell) for title in KEYS]
    scores = [score for one in halves if one for score in one.scores()]
    return f"{sum(scores):.0f}" if all(halves) else ""
