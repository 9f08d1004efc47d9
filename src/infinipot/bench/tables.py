"""Results as tables a person reads at a hundred columns."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rich.console import RenderableType
from rich.markup import escape
from rich.table import Table

from infinipot.bench.plan import shown

Document = dict[str, Any]
NONE = "-"
WIDTH = 16  # of the last words in a row


def tables(told: Document) -> Iterator[RenderableType]:
    """Everything there is, most important first."""
    yield heading(told)
    if told["rows"]:
        yield _rows(told["rows"], told["machine"]["device"])
        yield from _remarks(told)
    if told["shares"]:
        yield _shares(told["shares"])
    if told["documents"]:
        yield _documents(told["documents"])
    if told["side_by_side"]:
        yield from _side_by_side(told["side_by_side"])


def heading(told: Document) -> str:
    """What was measured, where, and what that machine can do."""
    model, machine, top = told["model"], told["machine"], told["ceilings"]
    unit = "GFLOP/s" if top["matmul_tflops"] < 1 else "TFLOP/s"
    times = 1000 if unit == "GFLOP/s" else 1
    return (
        f"[bold]{escape(model['name'])}[/bold]: {model['parameters'] / 1e9:.2f} billion parameters, "
        f"{model['dtype']}, {model['weight_bytes'] / 1e9:.2f} GB; {escape(machine['name'])}, "
        f"{machine['device']}, {machine['threads']} threads\n"
        f"ceilings: matrix products {times * top['matmul_tflops']:,.0f} {unit} "
        f"({times * top['matmul_tflops_sustained']:,.0f} sustained), copies {top['copy_gb_s']:,.0f} GB/s\n"
    )


def _table(title: str, *columns: str, left: int = 1) -> Table:
    """A table of numbers; the first columns are words."""
    table = Table(box=None, pad_edge=False, header_style="bold", title=title or None, title_justify="left")
    table.title_style = "bold"
    for index, column in enumerate(columns):
        words = index < left or column in ("ENGINE", "")
        table.add_column(column, justify="left" if words else "right", overflow="fold", no_wrap=index == 0)
    return table


def _rows(rows: list[Document], device: str) -> Table:
    memory = "MEMORY\nGB" if device.startswith("cuda") else "CACHE\nGB"
    columns = ("POT", "FIRST\nTOKEN s", "READING\ntokens/s", "OF\nMATMUL", "DECODE\nms", "OF\nCOPY", memory)
    table = _table("", "SYSTEM", "TEXT", *columns, "CYCLES", "ENGINE")
    for row in rows:
        pot = shown(row["capacity"]) if row["capacity"] else NONE
        table.add_row(
            escape(row["system"]),
            shown(row["length"]),
            pot,
            figure(row["first_token_s"]),
            _count(row["tokens_s"]),
            percent(row["matmul_share"]),
            figure(row["decode_ms"]),
            percent(row["copy_share"]),
            gigabytes(row["memory_bytes"]),
            NONE if row["cycles"] is None else f"{row['cycles']:,}",
            _last(row),
            style=None if row["ours"] else "dim" if row["failed"] else "cyan",
        )
    return table


def _last(row: Document) -> str:
    """How it ran, in a word or two; the rest is below the table."""
    if row["failed"]:
        return "failed" if len(short := row["failed"].split(":")[0]) > WIDTH else escape(short)
    return escape(row["engine"].split(":")[0][:WIDTH] if row["ours"] else "")


def _remarks(told: Document) -> Iterator[str]:
    """What a reader of the table must know, each thing once, with the lengths it is about."""
    found: dict[tuple[str, str], dict[str, None]] = {}
    for row in told["rows"]:
        engine = row["engine"] if ":" in row["engine"] or not row["ours"] else ""
        for text in filter(None, (row["failed"], engine, row["note"])):
            found.setdefault((row["system"], text), {})[shown(row["length"])] = None
    lines = [f"{name} at {', '.join(lengths)}: {text}" for (name, text), lengths in found.items()]
    warm = sum(row["warm_up_s"] or 0 for row in told["rows"] if row["ours"])
    yield "[dim]" + escape("\n".join([*lines, f"warming up, not counted above: {warm:.1f} s"])) + "[/dim]\n"


def _shares(shares: list[Document]) -> Table:
    columns = ("POT", "CYCLE ms", "TOKENS", "FORWARD", "NOVELTY", "DISTILLATION")
    table = _table("A steady cycle, and its parts", "SYSTEM", *columns)
    for one in shares:
        table.add_row(
            escape(one["system"]),
            shown(one["capacity"]),
            figure(one["complete_ms"]),
            f"{one['text_tokens']:,} + {one['catalyst_tokens']}",
            percent(one["forward_share"]),
            percent(one["novelty_share"]),
            percent(one["distillation_share"]),
        )
    table.caption, table.caption_justify = "distillation: with the catalyst's tokens", "left"
    return table


def _documents(rows: list[Document]) -> Table:
    table = _table("\nSeveral documents at once", "SYSTEM", "POT", "DOCUMENTS", "TOKENS/s", "TIMES ONE", "")
    for row in rows:
        failed = row.get("failed", "")
        table.add_row(
            escape(row["system"]),
            shown(row["capacity"]),
            str(row["documents"]),
            _count(row.get("tokens_s")),
            NONE if failed else f"{row['times_one']:.2f}",
            escape(failed),
        )
    return table


def _side_by_side(told: Document) -> Iterator[RenderableType]:
    for title, part in ((told["chunk"], told["reading"]), (told["answer"], told["decoding"])):
        others = list(part)
        columns = ("TOKENS/s", *(f"TIMES\n{escape(name)}" for name in others))
        table = _table(f"\n{title}, alternating rounds, {told['threads']} threads", "SYSTEM", *columns)
        for name, found in part.items():
            ratios = found["times_as_fast_as"]
            cells = [f"{ratios[other]:.2f}" if other in ratios else NONE for other in others]
            table.add_row(escape(name), _count(found["tokens_s"]), *cells)
        yield table
    for name, why in told["failed"].items():
        yield f"[dim]{escape(name)}: {escape(why)}[/dim]"


def figure(value: float | None) -> str:
    """Three digits that count."""
    if value is None:
        return NONE
    return f"{value:,.0f}" if value >= 1000 else f"{value:.{max(0, 2 - (value >= 10) - (value >= 100))}f}"


def _count(value: float | None) -> str:
    return NONE if value is None else f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def percent(value: float | None) -> str:
    """A share."""
    return NONE if value is None else f"{100 * value:.1f}%"


def gigabytes(value: int | None) -> str:
    """Bytes; what is small gets the digits it needs."""
    if value is None:
        return NONE
    return f"{value / 1e9:.2f}" if value >= 1e8 else f"{value / 1e9:.4f}"
