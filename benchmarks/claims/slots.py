"""What ADR 24 says of candidates for a pot's slots."""

from __future__ import annotations

from functools import partial

from claims.checks import Says
from claims.raw import chance, rows_of

DEFAULT, POOLED = "candidate 4096 general", "candidate 4096 pool=15 novelty_pool=15"
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
    right, tried = rows.right(f"{POOLED} join=sum general")
    adr("One ranking by both scores had all {} keys that it was tried on", right, holds=right == tried)
