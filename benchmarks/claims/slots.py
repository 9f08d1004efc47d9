"""What ADR 24 says of candidates for a pot's slots."""

from __future__ import annotations

from functools import partial

from claims.checks import Says
from claims.raw import chance, rows_of

DEFAULT, POOLED = "candidate 4096 general", "candidate 4096 pool=15 novelty_pool=15"
MORE = "{:.1f}, {:.1f} ({:.1f} to {:.1f})"
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
    right, tried = rows.right(f"{POOLED} join=sum general")
    adr("One ranking by both scores had all {} keys that it was tried on", right, holds=right == tried)


def _halves(adr: partial[None]) -> None:
    """The two candidates that went on, on every set and half."""
    both, ranked = f"{POOLED} {FACTS}", f"{POOLED} join=sum {FACTS}"
    tuned = rows_of("slots/longbench-tune")
    sets = {
        "essays, report half, {} keys": rows_of("slots/essays-report"),
        "facts, tune half, {} questions": rows_of("slots/facts-tune"),
        "facts, report half, {} questions": rows_of("slots/facts-report"),
        "LongBench, tune half, four tasks, {} rows": tuned,
        "LongBench, tune half, five more, {} rows": rows_of("slots/longbench-tune-more"),
        "LongBench, report half, {} rows": rows_of("slots/longbench-report"),
    }
    for label, rows in sets.items():
        told = [len(rows.cell(DEFAULT).rows), rows.mean(DEFAULT)[0]]
        for cell in (both, ranked):
            told += [rows.mean(cell)[0], *rows.less(cell, DEFAULT)]
        adr(f"| {label} | {{:.1f}} | {MORE} | {MORE} |", *told)
    essays, last = sets["essays, report half, {} keys"], sets["LongBench, report half, {} rows"]
    adr("Pass keys gain with both", holds=all(essays.less(cell, DEFAULT)[1] > 0 for cell in (both, ranked)))
    adr("which chance excludes", holds=last.less(ranked, DEFAULT)[2] < 0)
    few = all(chance(rows.less(both, DEFAULT)) for rows in (tuned, last))
    adr("which\nchance may be", holds=few and all(rows.less(both, DEFAULT)[0] < 0 for rows in (tuned, last)))
    known = "candidate 4096 question", f"{POOLED} question", f"{POOLED} join=sum question"
    words = "have {:.1f} with the default, {:.1f} with both and {:.1f} with one ranking."
    adr(words, *(tuned.mean(cell)[0] for cell in known))
