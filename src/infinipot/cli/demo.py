"""`infinipot demo`: a long logbook, a small pot, three questions; beside it, truncation and full KV."""

import random
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from infinipot.cli import given as g
from infinipot.cli.expand import Given, with_options
from infinipot.cli.screen import draw, gigabytes, note, plain_table, print_json, summary, watch_reading
from infinipot.models.catalog import DEFAULT_MODEL
from infinipot.models.memory import peak_memory_bytes
from infinipot.recipes.option import Option
from infinipot.recipes.options import ANSWER, COMPUTING, JSON, MODEL, SIZES, changed

if TYPE_CHECKING:
    from infinipot.reading.reader import Reader

DAYS = Option("days", int, 620, "Length of the logbook; a day is about 52 tokens.", least=10)
SIZE, SEED = changed((SIZES["capacity"], ANSWER[2]), capacity=2048, seed=0)
VERDICTS = {True: "[green]✓ {}[/green]", False: "[red]✗ {}[/red]"}
ROUTINE = (
    "The lamp was lit at dusk. The wind was light and the sea was calm. All instruments were checked and "
    "found in order. Two boats passed by and no one came ashore. The lamp was put out at dawn. There is "
    "nothing else to report."
)
SUBJECTS = ("the pass key of the tower", "the number of the spare lamp", "the radio code of the harbour")
OPENING = "This is the logbook of a lighthouse. Most days are the same, but some entries matter."
HELD = "The pot holds {}, however long the text; full KV would hold {} for this one, and grow."
LARGER = """{} has 135 million parameters: it finds facts in repetitive text, not in varied prose.
For real prose take a larger model (1.1 GB download):
  infinipot ask --model qwen2.5-coder-1.5b --file book.txt "Who is the captain of the ship?\""""


class Fact(NamedTuple):
    """Something worth remembering, and the question about it."""

    question: str
    answer: str
    depth: float


class Logbook(NamedTuple):
    """The text and its facts, in the order they appear."""

    text: str
    facts: tuple[Fact, ...]


def logbook(days: int = 1000, seed: int = 0, depths: tuple[float, ...] = (0.05, 0.5, 0.95)) -> Logbook:
    """Write a logbook of days that are alike but for the facts: varied prose is too hard for small models."""
    source = random.Random(seed)
    entries = [ROUTINE] * days
    facts = []
    for subject, depth in zip(SUBJECTS, depths, strict=False):
        answer = str(source.randint(10000, 99999))
        name = subject[0].upper() + subject[1:]
        facts.append(Fact(f"What is {subject}? {name} is", answer, depth))
        entries[int(depth * (days - 1))] += f"\n{name} is {answer}. Remember it. {answer} is {subject}."
    return Logbook("\n".join((OPENING, *entries)), tuple(facts))


@with_options(MODEL, SIZE, DAYS, SEED, *COMPUTING, JSON)
def demo(*, given: Given) -> None:
    """Read a logbook of some 30,000 tokens in a pot of 2,048 entries and find the facts in it."""
    from infinipot.recipes.recipe import Recipe

    # The embedded model is so small that the raw end of a text outweighs the rest: not fitted (ADR 15).
    size = given["capacity"]
    recipes = (Recipe.named(capacity=size, tail="distil", recall=0), Recipe.named("truncate", capacity=size))
    book = logbook(given["days"], given["seed"])
    engine = g.open_engine(given)
    reader, short = (engine.reader(replace(recipe, format=engine.format)) for recipe in recipes)
    if not given["json"]:
        note(f"a logbook of {len(book.text):,} characters; {len(book.facts)} facts hidden in it")
    watch_reading(reader, g.Text([book.text], len(book.text)))
    short.read(book.text)
    rows = [_row(fact, reader, short) for fact in book.facts]
    costs = _costs(reader)
    if given["json"]:
        print_json({"model": given["model"], "facts": rows, **costs})
    else:
        _show(rows, costs, reader, given["model"])


def _row(fact: Fact, reader: "Reader", short: "Reader") -> dict[str, Any]:
    from infinipot.reading.sampling import Generation

    row: dict[str, Any] = {"depth": fact.depth, "question": fact.question, "truth": fact.answer}
    for name, asked in (("pot", reader), ("truncated", short)):
        said = asked.ask(fact.question, Generation(12))
        row |= {name: said, f"{name}_right": said.startswith(fact.answer)}
    return row


def _costs(reader: "Reader") -> dict[str, Any]:
    """What the pot holds, and what holding every token would have taken."""
    layers = reader.pot.pot_layers
    entry = sum((layer.keys[:, :, :1].nbytes + layer.values[:, :, :1].nbytes) for layer in layers)
    step = reader.progress()
    read = {"tokens_read": step.tokens_read, "seconds": round(step.seconds, 1), "cycles": step.cycles}
    held = {"pot_bytes": reader.pot.nbytes, "full_kv_bytes": entry * reader.pot.tokens}
    peak = peak_memory_bytes(str(reader.model.device))
    return {**read, "capacity": step.capacity, **held, "peak_memory_bytes": peak}


def _show(rows: list[dict[str, Any]], costs: dict[str, Any], reader: "Reader", model: str) -> None:
    from rich.markup import escape

    size = f"{costs['capacity']:,}"
    table = plain_table(("AT", "QUESTION", "TRUTH", f"POT OF {size}", f"TRUNCATED TO {size}"))
    for row in rows:
        answers = ((VERDICTS[row[f"{which}_right"]], row[which]) for which in ("pot", "truncated"))
        said = (verdict.format(escape(answer.split("\n")[0][:28])) for verdict, answer in answers)
        table.add_row(f"{row['depth']:.0%}", row["question"], row["truth"], *said)
    pot, full = gigabytes(costs["pot_bytes"]), gigabytes(costs["full_kv_bytes"])
    draw(table, f"\n{summary(reader)}\n{HELD.format(pot, full)}\n")
    if model == DEFAULT_MODEL:
        draw(LARGER.format(model), highlight=False)
