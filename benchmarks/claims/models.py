"""What docs/results.md says of the same recipes with other models."""

from __future__ import annotations

from claims.checks import Says
from claims.raw import chance, rows_of

PAGE = "docs/results.md"


def claimed(says: Says) -> None:
    texts, noise, essays = (
        rows_of(f"grids-smollm2/{name}") for name in ("longbench", "passkey-short", "essays-short")
    )
    known, unknown = (
        texts.less(f"infinipot-paper 4096 {name}", f"infinipot 4096 {name}")
        for name in ("by-task", "general")
    )
    words = "as printed scores {:.1f} points more on LongBench than our defaults ({:.1f} to {:.1f}),"
    says(PAGE, words, *known, holds=not chance(known))
    words = "and {:.1f} with the question unknown ({:.1f} to {:.1f}),"
    says(PAGE, words, *unknown, holds=not chance(unknown))
    adr, rows = "docs/adr/0015-what-fits-where-a-text-ends.md", len(texts.cell("infinipot 4096 by-task").rows)
    words = (
        "scored {:.1f} points more on {} rows of LongBench's half `report`, earlier code ({:.1f} to {:.1f};"
    )
    says(adr, words, known[0], rows, *known[1:], holds=not chance(known))
    says(PAGE, "Those {} rows are of earlier code.", rows)
    (printed, count), (ours, _) = (
        noise.right(f"{name} 4096 question") for name in ("infinipot-paper", "infinipot")
    )
    says(PAGE, "finds {} of {} keys in noise against {};", printed, count, ours)
    (printed, count), (ours, _) = (
        essays.right(f"{name} 4096 question") for name in ("infinipot-paper", "infinipot")
    )
    says(adr, "it also finds {} keys of {} in essays where ours finds {},", printed, count, ours)
    says(PAGE, "in essays {} against {}.", printed, ours)
    few = rows_of("grids-gemma-3-270m/longbench")
    cells = [
        (name, f"infinipot 4096 {kind}")
        for name in ("full", "truncate 4096")
        for kind in ("by-task", "general")
    ]
    says(
        PAGE, "has too few rows to tell anything apart", holds=all(chance(few.less(*both)) for both in cells)
    )
