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
    (printed, count), (ours, _) = (
        noise.right(f"{name} 4096 question") for name in ("infinipot-paper", "infinipot")
    )
    says(PAGE, "finds {} of {} keys in noise against {};", printed, count, ours)
    (printed, _), (ours, _) = (
        essays.right(f"{name} 4096 question") for name in ("infinipot-paper", "infinipot")
    )
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
