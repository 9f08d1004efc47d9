"""`infinipot demo`: a long logbook, a small pot, three questions; beside it, truncation and full KV."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from infinipot.cli import options as o
from infinipot.cli.screen import Meter, gigabytes, note, summary, watch_reading
from infinipot.eval.tasks.logbook import Fact, logbook
from infinipot.models.catalog import DEFAULT_MODEL
from infinipot.models.peak_memory import peak_memory_bytes

if TYPE_CHECKING:
    from infinipot.reading.reader import Reader

Days = Annotated[int, typer.Option(min=10, help="Length of the logbook; a day is about 52 tokens.")]
ANSWER_TOKENS = 12


def demo(
    model: o.ModelName = DEFAULT_MODEL,
    capacity: o.Capacity = 2048,
    days: Days = 620,
    seed: o.Seed = 0,
    device: o.Device = "auto",
    dtype: o.Dtype = "auto",
    as_json: o.Json = False,
) -> None:
    """Read a logbook of some 30,000 tokens in a pot of 2,048 entries and find the facts in it."""
    # The embedded model is so small that the raw end of a text outweighs the rest: not fitted (ADR 15).
    recipes = [
        o.recipe("infinipot", capacity=capacity, tail="distil"),
        o.recipe("truncate", capacity=capacity),
    ]
    book = logbook(days, seed or 0)
    engine = o.open_engine(model, device, dtype)
    reader, short = (engine.reader(replace(recipe, format=engine.format)) for recipe in recipes)
    if not as_json:
        note(f"a logbook of {len(book.text):,} characters; {len(book.facts)} facts hidden in it")
    watch_reading(reader, Meter([book.text], len(book.text)))
    short.read(book.text)
    rows = [_row(fact, reader, short) for fact in book.facts]
    costs = _costs(reader)
    if as_json:
        print(json.dumps({"model": model, "facts": rows, **costs}, ensure_ascii=False))
    else:
        _show(rows, costs, reader, model)


def _row(fact: Fact, reader: Reader, short: Reader) -> dict[str, Any]:
    from infinipot.reading.sampling import Generation

    wanted = Generation(ANSWER_TOKENS)
    pot, cut = reader.ask(fact.question, wanted), short.ask(fact.question, wanted)
    return {
        "depth": fact.depth,
        "question": fact.question,
        "truth": fact.answer,
        "pot": pot,
        "pot_right": pot.startswith(fact.answer),
        "truncated": cut,
        "truncated_right": cut.startswith(fact.answer),
    }


def _costs(reader: Reader) -> dict[str, Any]:
    """What the pot holds, and what holding every token would have taken."""
    layers = reader.pot.pot_layers
    entry = sum((layer.keys[:, :, :1].nbytes + layer.values[:, :, :1].nbytes) for layer in layers)
    step = reader.progress()
    return {
        "tokens_read": step.tokens_read,
        "seconds": round(step.seconds, 1),
        "cycles": step.cycles,
        "capacity": step.capacity,
        "pot_bytes": reader.pot.nbytes,
        "full_kv_bytes": entry * reader.pot.tokens,
        "peak_memory_bytes": peak_memory_bytes(str(reader.model.device)),
    }


def _show(rows: list[dict[str, Any]], costs: dict[str, Any], reader: Reader, model: str) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console()
    table = Table(box=None, header_style="bold", pad_edge=False)
    pot = f"POT OF {costs['capacity']:,}"
    for heading in ("AT", "QUESTION", "TRUTH", pot, f"TRUNCATED TO {costs['capacity']:,}"):
        table.add_column(heading, overflow="fold")
    for row in rows:
        table.add_row(
            f"{row['depth']:.0%}",
            row["question"],
            row["truth"],
            _verdict(row["pot"], row["pot_right"]),
            _verdict(row["truncated"], row["truncated_right"]),
        )
    console.print(table)
    console.print(
        f"\n{summary(reader)}\n"
        f"The pot holds {gigabytes(costs['pot_bytes'])}, however long the text; "
        f"full KV would hold {gigabytes(costs['full_kv_bytes'])} for this one, and grow.\n"
    )
    if model == DEFAULT_MODEL:
        console.print(
            f"{model} has 135 million parameters: it finds facts in repetitive text, not in varied prose.\n"
            "For real prose take a larger model (1.1 GB download):\n"
            '  infinipot ask --model qwen2.5-coder-1.5b --file book.txt "Who is the captain of the ship?"',
            highlight=False,
        )


def _verdict(answer: str, right: bool) -> str:
    from rich.markup import escape

    said = escape(answer.split("\n")[0][:28])
    return f"[green]✓ {said}[/green]" if right else f"[red]✗ {said}[/red]"
