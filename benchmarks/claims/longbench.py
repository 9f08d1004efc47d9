"""What the documentation says of LongBench's older rows: docs/results.md, ADR 14 and ADR 15."""

from __future__ import annotations

from functools import partial

from claims.checks import Says
from claims.raw import chance, rows_of

GRID = "grids/longbench"
OURS, UNKNOWN = "infinipot 4096 by-task", "infinipot 4096 units=slots general"
PLAIN = "infinipot 4096 tail=distil by-task"
LESS = "{:.1f} ({:.1f} to {:.1f})"


def claimed(says: Says) -> None:
    _older(partial(says, "docs/results.md"))
    _advice(says)
    _ends(partial(says, "docs/adr/0015-what-fits-where-a-text-ends.md"))


def _older(says: partial[None]) -> None:
    """What was not run again."""
    grid = rows_of(GRID)
    says("both halves, {} rows, {} tasks", len(grid.cell(OURS).rows), len(grid.by_task(OURS)))


def _advice(says: Says) -> None:
    grid = rows_of(GRID)
    kept = grid.less("infinipot 4096 keep=3072 tail=distil by-task", PLAIN)
    words = "on LongBench it had {:.1f} less ({:.1f} less to {:.1f} more): by rows of earlier code."
    says("docs/choosing.md", words, -kept[0], -kept[1], kept[2], holds=chance(kept))
    adr, pool = "docs/adr/0014-pooled-scores.md", "infinipot 4096 tail=distil pool={} by-task"
    mean, low, high = grid.less(pool.format(1), PLAIN)
    wider = grid.less(pool.format(15), PLAIN)
    words = (
        "not pooled is {:.1f} points lower, 95% interval {:.1f} lower to {:.1f} higher; over 15 "
        "slots {:.1f} lower."
    )
    says(adr, words, -mean, -low, high, -wider[0], holds=chance((mean, low, high)) and chance(wider))
    narrow = "infinipot 4096 tail=distil pool=1 units=slots general"
    mean, low, high = grid.less("infinipot 4096 tail=distil units=slots general", narrow)
    words = (
        "is {:.1f} points higher ({:.1f} lower to {:.1f} higher, on the {} rows both have): no more "
        "than chance"
    )
    says(adr, words, mean, -low, high, len(grid.cell(narrow).rows), holds=chance((mean, low, high)))
    says(adr, "On LongBench ({} rows)", len(grid.cell(PLAIN).rows))


def _ends(says: partial[None]) -> None:
    grid = rows_of(GRID)
    rows = {
        "settled at \\|C\\| (ADR 4)": (
            "infinipot 4096 tail=distil by-task",
            "infinipot 4096 tail=distil units=slots general",
        ),
        "last chunk left as it is, as in the paper": (
            "infinipot 4096 tail=raw by-task",
            "infinipot 4096 tail=raw units=slots general",
        ),
    }
    says("LongBench's {} rows, mean of rows", len(grid.cell(OURS).rows))
    says("| fitted | {:.1f} | | {:.1f} |", grid.mean(OURS)[0], grid.mean(UNKNOWN)[0])
    for label, (cell, general) in rows.items():
        numbers = grid.mean(cell)[0], *grid.less(cell, OURS), grid.mean(general)[0]
        says(f"| {label} | {{:.1f}} | {LESS} | {{:.1f}} |", *numbers)
    for label, cell in (("whole cache", "full"), ("truncated", "truncate 4096")):
        says(f"| for comparison: {label} | {{:.1f}} | {LESS} | |", grid.mean(cell)[0], *grid.less(cell, OURS))
