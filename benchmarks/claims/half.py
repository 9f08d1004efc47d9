"""What is said of LongBench's half `report` with today's code, and of `smollm2` on the half `tune`."""

from __future__ import annotations

from functools import partial

from claims.checks import Says
from claims.raw import chance, rows_of
from infinipot.eval.estimates import FEW

GRID = "report-half/longbench"
OURS, UNKNOWN = "infinipot 4096 by-task", "infinipot 4096 general"
PRINTED = "infinipot-paper 4096 by-task"
ADR = "docs/adr/0015-what-fits-where-a-text-ends.md"


def claimed(says: Says) -> None:
    page = partial(says, "docs/results.md")
    _told_apart(page)
    _printed(says)


def _told_apart(says: partial[None]) -> None:
    grid, seen = rows_of(GRID), set(rows_of("grids/longbench").cell(OURS).by_example())
    cells = [name for name in grid.names if not name.startswith("infinipot 4096")]
    none = not any(grid.less(cell, base)[1] > 0 for cell in cells for base in (OURS, UNKNOWN))
    says("Nothing is more than chance above InfiniPot on this half", holds=none)
    means = [grid.average(cell, FEW)[0] for cell in ("truncate 4096", "full", PRINTED, OURS)]
    words = "truncation has {:.1f}, the whole cache {:.1f} and the method as printed {:.1f} against its"
    says(f"{words} {{:.1f}},", *means)
    known = {cell: grid.less(cell, OURS, seen) for cell in cells}
    apart = {cell: found[2] for cell, found in known.items() if not chance(found)}
    words = "only TOVA (its upper end is {:.2f}) and SirLLM ({:.2f}) are told apart, with questions known;"
    ends = (known[cell][2] for cell in ("tova 4096", "sirllm 4096"))
    says(words, *ends, holds=set(apart) == {"tova 4096", "sirllm 4096"})
    blind = [cell for cell in cells if not cell.endswith("by-task") and cell != "snapkv 4096"]
    level = all(chance(grid.less(cell, UNKNOWN, seen)) for cell in blind)
    says("with questions unknown nothing is.", holds=level)
    rows = grid.cell(UNKNOWN).rows
    says("Recipes with {} rows are whole.", len(rows))
    says("drawn by a hash, {} in all", max(n for n in map(_count, cells) if n < len(rows)))
    alike = sum("same_as" in row for row in rows)
    says("{} of the {} rows are read as with the question known,", alike, len(rows))


def _count(cell: str) -> int:
    return len(rows_of(GRID).cell(cell).rows)


def _printed(says: Says) -> None:
    tune = rows_of("defaults-smollm2/longbench")
    found, ours = tune.less(PRINTED, OURS), tune.cell(OURS)
    both = set(ours.by_example()) & set(tune.cell(PRINTED).by_example())
    words = "it scores {:.1f} points more, but the interval has 0 in it ({:.1f} to {:.1f}; {} rows"
    says("docs/results.md", words, *found, len(both), holds=chance(found))
    fit = sum(row["cycles"] == 0 for row in ours.rows if row["example"] in both)
    words = "{:.1f} points more ({:.1f} to {:.1f}) on the {} rows that both have, {} of which fit the pot"
    says(ADR, words, *found, len(both), fit, holds=chance(found))
    _printed_unknown(partial(says, ADR))
    mean, low, high = rows_of(GRID).less(PRINTED, OURS)
    words = "on {} rows of the half `report`, the method as printed is {:.1f} below ({:.1f} below"
    words += " to {:.1f} above)"
    says(ADR, words, len(rows_of(GRID).cell(OURS).rows), -mean, -low, high, holds=chance((mean, low, high)))


def _printed_unknown(says: partial[None]) -> None:
    grid, printed = rows_of(GRID), "infinipot-paper 4096 general"
    seen = set(rows_of("grids/longbench").cell(OURS).by_example())
    mean, low, high = grid.less(printed, UNKNOWN)
    chosen = len(seen & set(grid.cell(UNKNOWN).by_example()))
    words = "With questions unknown it is {:.1f} below ({:.1f} to {:.1f} below), which {} rows of the choice"
    says(words, -mean, -low, -high, chosen, holds=high < 0)
    mean, low, high = grid.less(printed, UNKNOWN, seen)
    words = "on the others {:.1f} below ({:.1f} below to {:.1f} above)."
    says(words, -mean, -low, high, holds=low < 0 < high)
