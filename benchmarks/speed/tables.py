"""A comparison as tables: those of `infinipot bench`, and what only a comparison has."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rich.console import RenderableType
from rich.markup import escape
from rich.table import Table

from infinipot.bench import tables as own
from infinipot.bench.tables import NONE, number, table
from infinipot.common.sizes import short

Document = dict[str, Any]


def tables(told: Document) -> Iterator[RenderableType]:
    """Yield everything there is, most important first."""
    yield from own.tables(told)
    yield _ceilings(told["ceilings"])
    if told["rows"]:
        yield _shares_of_ceilings(told["rows"])
    if told["shares"]:
        yield _parts(told["shares"])
    if told["side_by_side"]:
        yield from _side_by_side(told["side_by_side"])


def _ceilings(top: dict[str, float]) -> str:
    unit, times = ("GFLOP/s", 1000) if top["matmul_tflops"] < 1 else ("TFLOP/s", 1)
    return (
        f"\nceilings: matrix products {times * top['matmul_tflops']:,.0f} {unit} "
        f"({times * top['matmul_tflops_sustained']:,.0f} sustained), copies {top['copy_gb_s']:,.0f} GB/s"
    )


def _shares_of_ceilings(rows: list[Document]) -> Table:
    found = table("", "SYSTEM", "TEXT", "POT", "READING OF MATMUL", "DECODING OF COPY")
    for row in rows:
        pot = short(row["capacity"]) if row["capacity"] else NONE
        shares = (percent(row["matmul_share"]), percent(row["copy_share"]))
        found.add_row(escape(row["system"]), short(row["length"]), pot, *shares)
    return found


def _parts(shares: list[Document]) -> Table:
    columns = ("POT", "CYCLE ms", "TOKENS", "FORWARD", "NOVELTY", "DISTILLATION")
    found = table("\nA steady cycle, and its parts", "SYSTEM", *columns)
    for one in shares:
        found.add_row(
            escape(one["system"]),
            short(one["capacity"]),
            number(one["complete_ms"]),
            f"{one['text_tokens']:,} + {one['catalyst_tokens']}",
            percent(one["forward_share"]),
            percent(one["novelty_share"]),
            percent(one["distillation_share"]),
        )
    found.caption, found.caption_justify = "distillation: with the catalyst's tokens", "left"
    return found


def _side_by_side(told: Document) -> Iterator[RenderableType]:
    for title, part in ((told["chunk"], told["reading"]), (told["answer"], told["decoding"])):
        others = list(part)
        columns = ("TOKENS/s", *(f"TIMES\n{escape(name)}" for name in others))
        found = table(f"\n{title}, alternating rounds, {told['threads']} threads", "SYSTEM", *columns)
        for name, one in part.items():
            ratios = one["times_as_fast_as"]
            cells = [f"{ratios[other]:.2f}" if other in ratios else NONE for other in others]
            found.add_row(escape(name), number(one["tokens_s"]), *cells)
        yield found
    for name, why in told["failed"].items():
        yield f"[dim]{escape(name)}: {escape(why)}[/dim]"


def percent(value: float | None) -> str:
    """Write a share."""
    return NONE if value is None else f"{100 * value:.1f}%"
