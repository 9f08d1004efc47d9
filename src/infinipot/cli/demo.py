"""`infinipot demo`: chapters of a novel, a small pot, six questions; with recall, without, and truncated."""

import lzma
from collections.abc import Sequence
from dataclasses import replace
from importlib.resources import files
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

from infinipot.cli import given as g
from infinipot.cli.expand import Given, with_options
from infinipot.cli.screen import draw, gigabytes, note, print_json, sign_of_life, summary, watch_reading
from infinipot.models.catalog import DEFAULT_MODEL
from infinipot.models.memory import peak_memory_bytes
from infinipot.recipes.options import COMPUTING, JSON, MODEL, SIZES, changed
from infinipot.text.files import named

if TYPE_CHECKING:
    from infinipot.reading.reader import Reader

# Herman Melville, Moby-Dick; or, The Whale (1851), chapters 1 to 13: in the public domain.
BOOK, TITLE = "moby_dick.md.xz", "Moby Dick"
SIZE = changed((SIZES["capacity"],), capacity=2048)
SHARE = 8  # a capacity's part that passages take: a very small model loses its way among several
LONGEST = 24  # tokens of an answer
WAYS = {"recall": "pot with recall", "pot": "pot alone", "truncated": "truncated"}
VERDICTS = {True: "[green]✓ {}[/green]", False: "[red]✗ {}[/red]"}
RIGHT = "Right: {} with recall, {} from the pot alone, {} truncated. The passage was found for {}."
HELD = "The pot holds {}, however long the text; full KV would hold {} for this one, and grow."
LARGER = """
These questions were chosen so that some of them succeed with {}, which has 135 million parameters: a show, \
and no test. To try a larger model (1.1 GB download):
  infinipot demo --model qwen2.5-coder-1.5b"""


class Question(NamedTuple):
    """A question about the book, and words that a right answer has in it."""

    text: str
    truth: str


QUESTIONS = (
    Question("Which inn has bright red windows?", "Sword-Fish"),
    Question("Near which isle was John Talbot lost overboard?", "Desolation"),
    Question("What had Father Mapple been in his youth?", "harpooneer"),
    Question("Of which general's head did Queequeg's head remind me?", "Washington"),
    Question("Of which island is Queequeg a native?", "Rokovoko"),
    Question("What was the name of the packet schooner moored at the wharf?", "Moss"),
)


def chapters() -> dict[str, str]:
    """Return the text of every chapter by its name."""
    book = lzma.decompress((files("infinipot.cli") / BOOK).read_bytes()).decode()
    parts = (chapter.partition("\n\n") for chapter in book.split("# ")[1:])
    return {f"{TITLE}, {name}": text for name, _, text in parts}


@with_options(MODEL, *SIZE, *COMPUTING, JSON)
def demo(*, given: Given) -> None:
    """Read 13 chapters of Moby Dick, some 31,000 tokens, in a pot of 2,048 entries, and ask about them."""
    (reader, short), book = _readers(given), chapters()
    total, size = sum(map(len, book.values())), given["capacity"]
    if not given["json"]:
        note(f"the first {len(book)} chapters of {TITLE}, {total:,} characters; a pot of {size:,} entries")
    pieces = chain.from_iterable(named([text], name) for name, text in book.items())
    watch_reading(reader, g.Text(pieces, total))
    short.read(book.values())
    rows = []
    for question in QUESTIONS:
        with sign_of_life(question.text):
            rows.append(_row(question, reader, short))
        if not given["json"]:
            _show(rows[-1])
    if given["json"]:
        about = {"model": given["model"], "recall": reader.config.recall}
        print_json({**about, "questions": rows, **_costs(reader)})
    else:
        _conclude(rows, reader, given["model"])


def _readers(given: Given) -> "tuple[Reader, Reader]":
    """Return a reader with a pot, and one that truncates."""
    from infinipot.recipes.recipe import Recipe

    size = given["capacity"]
    # Settings that were tried with this very small model: a text's end distilled like the rest (ADR 15), and
    # no whole sentences beside recall (ADR 24). It is silent unless spoken to.
    pot = Recipe.named(capacity=size, tail="distil", recall=size // SHARE, units="slots")
    cut, engine = Recipe.named("truncate", capacity=size), g.open_engine(given)
    layout = engine.dialogue_format
    return engine.reader(replace(pot, format=layout)), engine.reader(replace(cut, format=layout))


def _row(question: Question, reader: "Reader", short: "Reader") -> dict[str, Any]:
    """Ask in every way; an answer is the first line of what is said."""
    from infinipot.reading.sampling import Generation
    from infinipot.recall.words import terms

    wanted = Generation(LONGEST)
    said = reader.ask(question.text, wanted)
    alone, cut = reader.ask(question.text, wanted, recall=0), short.ask(question.text, wanted)
    row: dict[str, Any] = {"question": question.text, "truth": question.truth}
    for way, answer in zip(WAYS, (said, alone, cut), strict=True):
        line = answer.split("\n")[0]
        row |= {way: line, f"{way}_right": question.truth.lower() in line.lower()}
    words = terms(question.text)
    passages = [{**one.to_json(), "quote": one.quote(words)} for one in said.passages]
    return {**row, "found": any(question.truth in one.text for one in said.passages), "passages": passages}


def _costs(reader: "Reader") -> dict[str, Any]:
    """What the pot holds, and what holding every token would have taken."""
    layers = reader.pot.pot_layers
    entry = sum((layer.keys[:, :, :1].nbytes + layer.values[:, :, :1].nbytes) for layer in layers)
    step = reader.progress()
    read = {"tokens_read": step.tokens_read, "seconds": round(step.seconds, 1), "cycles": step.cycles}
    held = {"pot_bytes": reader.pot.nbytes, "full_kv_bytes": entry * reader.pot.tokens}
    peak = peak_memory_bytes(str(reader.model.device))
    return {**read, "capacity": step.capacity, **held, "peak_memory_bytes": peak}


def _show(row: dict[str, Any]) -> None:
    """Draw a question, its answers, and the passages that were read again for the first of them."""
    from rich.markup import escape
    from rich.table import Table

    table = Table.grid(padding=(0, 2, 0, 0))
    for way, name in WAYS.items():
        table.add_row(f"  {name}", VERDICTS[row[f"{way}_right"]].format(escape(row[way] or "nothing")))
    for passage in row["passages"]:
        table.add_row("  [dim]from[/dim]", f"[dim]{escape(passage['place'])}[/dim]")
        table.add_row("", f"[dim]“{escape(passage['quote'])}”[/dim]")
    draw(f"\n[bold]{escape(row['question'])}[/bold] ({escape(row['truth'])})", table, highlight=False)


def _conclude(rows: Sequence[dict[str, Any]], reader: "Reader", model: str) -> None:
    """Say how many answers were right, what reading took, and which model to take."""
    counts = [sum(row[name] for row in rows) for name in (*(f"{way}_right" for way in WAYS), "found")]
    told, costs = RIGHT.format(*(f"{count} of {len(rows)}" for count in counts)), _costs(reader)
    held = HELD.format(gigabytes(costs["pot_bytes"]), gigabytes(costs["full_kv_bytes"]))
    larger = LARGER.format(model) if model == DEFAULT_MODEL else ""
    draw(f"\n{told}\n{summary(reader)}\n{held}{larger}", highlight=False)
