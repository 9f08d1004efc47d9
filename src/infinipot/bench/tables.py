"""Results as tables a person reads at a hundred columns."""

from collections.abc import Iterator
from typing import Any

from rich.console import RenderableType
from rich.markup import escape
from rich.table import Table

from infinipot.common.sizes import short

Document = dict[str, Any]
NONE = "-"
WIDTH = 16  # of the last words in a row
COLUMNS = ("SYSTEM", "TEXT", "POT", "FIRST\nTOKEN s", "READING\ntokens/s", "TIMES\nplain", "DECODE\nms")


def tables(told: Document) -> Iterator[RenderableType]:
    """Yield everything there is, most important first."""
    model, machine = told["model"], told["machine"]
    yield (
        f"[bold]{escape(model['name'])}[/bold]: {model['parameters'] / 1e9:.2f} billion parameters, "
        f"{model['dtype']}, {model['weight_bytes'] / 1e9:.2f} GB; {escape(machine['name'])}, "
        f"{machine['device']}, {machine['threads']} threads\n"
    )
    if told["rows"]:
        memory = "MEMORY\nGB" if machine["device"].startswith("cuda") else "CACHE\nGB"
        found = table("", *COLUMNS, "TIMES\nplain", memory, "CYCLES", "ENGINE")
        for row in told["rows"]:
            found.add_row(*_cells(row), style=None if row["ours"] else "dim" if row["failed"] else "cyan")
        yield found
        yield remarks(told["rows"])
    if told["documents"]:
        yield _documents(told["documents"])


def table(title: str, *columns: str) -> Table:
    """Return an empty table of numbers; the first column is words."""
    found = Table(box=None, pad_edge=False, header_style="bold", title=title or None, title_justify="left")
    found.title_style = "bold"
    for index, column in enumerate(columns):
        words = index == 0 or column in ("ENGINE", "")
        found.add_column(column, justify="left" if words else "right", overflow="fold", no_wrap=index == 0)
    return found


def _cells(row: Document) -> Iterator[str]:
    yield from (escape(row["system"]), short(row["length"]))
    yield short(row["capacity"]) if row["capacity"] else NONE
    yield from map(number, (row["first_token_s"], row["tokens_s"], row["reading_ratio"]))
    yield from map(number, (row["decode_ms"], row["decode_ratio"]))
    yield number(row["memory_bytes"] and row["memory_bytes"] / 1e9)
    yield NONE if row["cycles"] is None else f"{row['cycles']:,}"
    words = (row["failed"] or (row["engine"] if row["ours"] else "")).split(":")[0]
    yield escape("failed" if row["failed"] and len(words) > WIDTH else words[:WIDTH])


def remarks(rows: list[Document]) -> str:
    """Return what a reader of the table must know, each thing once, with the lengths it is about."""
    found: dict[tuple[str, str], dict[str, None]] = {}
    for row in rows:
        engine = row["engine"] if ":" in row["engine"] or not row["ours"] else ""
        for text in filter(None, (row["failed"], engine, row["note"])):
            found.setdefault((row["system"], text), {})[short(row["length"])] = None
    lines = [f"{name} at {', '.join(lengths)}: {text}" for (name, text), lengths in found.items()]
    warm = sum(row["warm_up_s"] or 0 for row in rows if row["ours"])
    return "[dim]" + escape("\n".join([*lines, f"warming up, not counted above: {warm:.1f} s"])) + "[/dim]\n"


def _documents(rows: list[Document]) -> Table:
    found = table("\nSeveral documents at once", "SYSTEM", "POT", "DOCUMENTS", "TOKENS/s", "TIMES ONE", "")
    for row in rows:
        speeds = (number(row.get("tokens_s")), number(row.get("times_one")))
        about = (escape(row["system"]), short(row["capacity"]), str(row["documents"]))
        found.add_row(*about, *speeds, escape(row.get("failed", "")))
    return found


def number(value: float | None) -> str:
    """Write three digits that count."""
    if value is None:
        return NONE
    places = 0 if value >= 100 or not value else 1 if value >= 10 else 2 if value >= 0.1 else 4
    return f"{value:,.{places}f}"
