"""What ADR 24 and docs/results.md say of candidates for a pot's slots."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from claims.checks import Says
from claims.raw import Rows, chance, rows_of
from infinipot.eval.tasks.task import half
from paper.spent import CANDIDATES, USUAL

DEFAULT, POOLED = "candidate 4096 general", "candidate 4096 pool=15 novelty_pool=15"
MORE, FOUND = "{:.1f}, {:.1f} ({:.1f} to {:.1f})", "{}, {:.1f} ({:.1f} to {:.1f})"
ESSAYS, PARTS = "report-half/essays-more", ("tune", "report")
ASKED = "defaults-qwen2.5-coder-1.5b/facts", "report-half/facts-report"
GONE_ON = tuple(CANDIDATES.values())
FACTS = '"Repeat every name, number, date and fact of the text above."'


def claimed(says: Says) -> None:
    adr, rows = (
        partial(says, "docs/adr/0024-how-a-pot-spends-its-slots.md"),
        rows_of("slots/essays-tune"),
    )
    adr("| the default | {} of {} | |", *rows.right(DEFAULT))
    found = {
        "novelty pooled too, both over 15 slots": f"{POOLED} general",
        f"the catalyst {FACTS}": f"candidate 4096 {FACTS}",
        "both": f"{POOLED} {FACTS}",
        "pooled so, novelty by its maximum": f"{POOLED} novelty_pooling=max general",
    }
    for label, cell in found.items():
        more = rows.less(cell, DEFAULT)
        words = f"| {label} | {{}} of {{}} | {{:.1f}} ({{:.1f}} to {{:.1f}}) |"
        adr(words, *rows.right(cell), *more, holds=chance(more) != (label == "both"))
    _halves(adr)
    _results(partial(says, "docs/results.md"))
    right, tried = rows.right(f"{POOLED} join=sum general")
    adr("One ranking by both scores had all {} keys that it was tried on", right, holds=right == tried)


def _halves(adr: partial[None]) -> None:
    """The candidates that went on, on every set and half."""
    essays, tuned, last = map(rows_of, (ESSAYS, "slots/longbench-tune", "slots/longbench-report"))
    found = [essays.right(cell)[0] for cell in (USUAL, *GONE_ON)]
    adr("| keys in essays, all {} | {} | {} | {} | {} | {} |", essays.right(USUAL)[1], *found)
    names = set(essays.cell(USUAL).by_example())
    halves = {part: {name for name in names if half(name) != part} for part in PARTS}
    for part, other in halves.items():
        keys = essays.right(USUAL, without=other)
        told: list[float] = [keys[1], keys[0]]
        for cell in GONE_ON:
            told += [essays.right(cell, without=other)[0], *essays.less(cell, USUAL, other)]
        adr(f"| the same, {part} half, {{}} | {{}} | {' | '.join([FOUND] * 4)} |", *told)
    for part, name in zip(PARTS, ASKED, strict=True):
        _row(adr, f"facts, {part} half, {{}} questions", rows_of(name), USUAL, GONE_ON)
        moved = [rows_of(name).less(cell, USUAL) for cell in GONE_ON]
        adr("Facts do not move beyond chance with any", holds=all(map(chance, moved)))
    _row(adr, "LongBench, tune half, four tasks, {} rows, earlier code", tuned, DEFAULT, GONE_ON[:2])
    more = rows_of("slots/longbench-tune-more")
    _row(adr, "LongBench, tune half, five more, {} rows, earlier code", more, DEFAULT, GONE_ON[:2])
    _row(adr, "LongBench, report half, {} rows, earlier code", last, DEFAULT, GONE_ON[:2])
    _won(adr, halves)
    known = "candidate 4096 question", f"{POOLED} question", f"{POOLED} join=sum question"
    words = "have {:.1f} with the default, {:.1f} with both and {:.1f} with one ranking."
    adr(words, *(tuned.mean(cell)[0] for cell in known))


def _row(adr: partial[None], label: str, rows: Rows, usual: str, cells: Sequence[str]) -> None:
    told = [len(rows.cell(usual).rows), rows.mean(usual)[0]]
    for cell in cells:
        told += [rows.mean(cell)[0], *rows.less(cell, usual)]
    adr(f"| {label} | {{:.1f}} | {' | '.join([MORE] * len(cells))} |", *told)


def _won(adr: partial[None], halves: Mapping[str, set[str]]) -> None:
    """One ranking wins on `tune`, and `report` confirms the keys alone."""
    essays, ranked = rows_of(ESSAYS), GONE_ON[1]
    keys = {part: essays.less(ranked, USUAL, other) for part, other in halves.items()}
    tuned, last = (rows_of(f"slots/longbench-{part}").less(ranked, DEFAULT) for part in PARTS)
    numbers = [essays.right(cell, without=halves["tune"])[0] for cell in (ranked, USUAL)]
    words = "{} keys against {}, and LongBench {:.1f} above ({:.1f} below to {:.1f} above)"
    adr(words, *numbers, tuned[0], -tuned[1], tuned[2], holds=keys["tune"][1] > 0 and chance(tuned))
    numbers = [essays.right(cell, without=halves["report"])[0] for cell in (ranked, USUAL)]
    right, count = essays.right(ranked)
    words = "confirms the keys ({} against {}; {} of all {}, more than nine tenths)"
    adr(words, *numbers, right, count, holds=keys["report"][1] > 0 and 10 * right > 9 * count)
    rows = len(rows_of("slots/longbench-report").cell(DEFAULT).rows)
    words = "but not LongBench: {:.1f} below ({:.1f} to {:.1f} below), on {} rows of earlier code."
    adr(words, *(-number for number in last), rows, holds=last[2] < 0)


def _results(says: partial[None]) -> None:
    essays = rows_of(ESSAYS)
    found = [essays.right(cell)[0] for cell in (USUAL, *GONE_ON)]
    words = "Of all {} keys the default finds {}, and the candidates {}, {}, {} and {} in the order of"
    says(words, essays.right(USUAL)[1], *found, holds=10 * found[2] > 9 * essays.right(USUAL)[1])
    last = rows_of("slots/longbench-report").less(GONE_ON[1], DEFAULT)
    words = "that candidate is {:.1f} points below the default on the half `report`,"
    says(words, -last[0], holds=last[2] < 0)
