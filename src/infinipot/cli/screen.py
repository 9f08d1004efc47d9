"""What a terminal shows: a bar while a text is read, a line when it is done, tables, documents."""

import json
import sys
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from infinipot.cli.estimate import Estimate
from infinipot.models.memory import peak_memory_bytes
from infinipot.reading.progress import Progress, TextProgress

if TYPE_CHECKING:
    from rich.progress import Progress as Bars
    from rich.table import Table

    from infinipot.cli.given import Text
    from infinipot.reading.reader import Reader
    from infinipot.recall.passages import Passage
    from infinipot.recipes.recipe import Recipe

BAR, ELAPSED, LEFT, SPIN = "bar", "elapsed", "left", "spin"
WIDE = 110  # columns that a bar with all beside it takes
BRIEF: dict[str, Any] = {"transient": True, "speed_estimate_period": 600}  # a bar that goes when it is done
SILENT = "the model answered nothing: try --format chat, or end the question with the beginning of its answer"


def watch_reading(reader: "Reader", text: "Text", label: str = "reading") -> None:
    """Read a text to its end, under a bar where a person is watching; say what a long one will take."""
    estimate = Estimate(text.total, before := reader.progress())
    part = TextProgress(reader.tokenizer, reader.archived(text.pieces))

    def passes() -> Iterator[tuple[Progress, int]]:
        for step in reader.reading_tokens(part.tokens()):
            characters = part.read(step.tokens_read - before.tokens_read)
            if line := estimate.after(step, characters):
                note(line)
            yield step, characters

    if not sys.stderr.isatty():
        deque(passes(), maxlen=0)
        return
    share = () if text.total is None else ("{task.percentage:>3.0f}%", LEFT, "left ")
    with bars("{task.description}", BAR, *share, "{task.fields[state]}", ELAPSED, **BRIEF) as shown:
        task = shown.add_task(label, total=text.total, state="")
        for step, characters in passes():
            state = _state(step, reader, shown.console.width)
            shown.update(task, completed=characters, state=state)


def _state(step: Progress, reader: "Reader", width: int) -> str:
    """What stands beside the bar: all there is to say, or as much as a narrow terminal has room for."""
    pot = f"pot {step.fill:,}/{step.capacity:,}" if step.capacity else f"cache {step.fill:,}, growing"
    read = f"{step.tokens_read:,} tokens"
    if width < WIDE:
        return f"{read}  {pot}"
    memory = gigabytes(peak_memory_bytes(str(reader.model.device)))
    return f"{read}  {rate(step):,.0f}/s  {step.cycles} cycles  {pot}  {memory}"


@contextmanager
def sign_of_life(doing: str) -> "Iterator[Bars | None]":
    """Show what is being done, and for how long already, where a person is watching."""
    if not sys.stderr.isatty():
        yield None
        return
    with bars(SPIN, "{task.description}", ELAPSED, transient=True) as shown:
        shown.add_task(doing, total=None)
        yield shown


def show_passages(reader: "Reader", question: str, passages: "Sequence[Passage]") -> None:
    """Say below an answer where it may come from, or that nothing was found."""
    from infinipot.recall.words import terms

    if reader.archive and reader.archive.problem:
        note(f"{reader.archive.problem}: what came after that is not recalled")
    if not passages and reader.archive and reader.pot.cycles and reader.config.recalled > 0:
        note("no passage of the text shares a telling word with the question: this is from the pot alone")
    for passage in passages:
        note(f"  {passage.place}: \u201c{passage.quote(terms(question))}\u201d")


def bars(*columns: str, **more: Any) -> "Bars":
    """Return a progress display on standard error; a column is BAR, ELAPSED, LEFT, SPIN or a text."""
    from rich import progress as p
    from rich.console import Console

    own = {BAR: p.BarColumn(bar_width=24), ELAPSED: p.TimeElapsedColumn(), LEFT: p.TimeRemainingColumn()}
    own[SPIN] = p.SpinnerColumn()
    made = [own.get(column) or p.TextColumn(column, markup=False) for column in columns]
    return p.Progress(*made, console=Console(stderr=True), **more)


def summary(reader: "Reader", recipe: "Recipe | None" = None) -> str:
    """One line about what was read, and what the reader of the line must know of the recipe."""
    step, peak = reader.progress(), peak_memory_bytes(str(reader.model.device))
    pot = f"pot of {step.capacity:,} entries" if step.capacity else f"{step.fill:,} entries, not bounded"
    cut = reader.session.mode.prompt == "truncate"  # nothing was read yet, or only both ends
    took = "taken in" if cut else f"read in {step.seconds:.1f} s ({rate(step):,.0f}/s)"
    known = f"; {recipe.preset.name}: {recipe.note}" if recipe and recipe.note else ""
    read = f"{step.tokens_read:,} tokens {took}, {step.cycles} cycles, {pot}"
    return f"{read}, peak memory {gigabytes(peak)}{known}"


def costs(reader: "Reader", phases: Sequence[str], clock: Sequence[float]) -> dict[str, Any]:
    """Return the part of a JSON document that says what reading took, from the times between its phases."""
    spans = (after - before for before, after in pairwise(clock))
    return {
        "engine": f"plain: {why}" if (why := reader.session.capture_obstacle) else "captured",
        "peak_memory_bytes": peak_memory_bytes(str(reader.model.device)),
        "seconds": {phase: round(span, 3) for phase, span in zip(phases, spans, strict=True)},
    }


def rate(step: Progress) -> float:
    """Tokens a second."""
    return step.tokens_read / step.seconds if step.seconds else 0.0


def gigabytes(count: int) -> str:
    """Bytes as people read them."""
    return f"{count / 1e9:.2f} GB"


def megabytes(count: int) -> str:
    """Bytes of a file as people read them."""
    return f"{count / 1e6:,.{0 if count >= 1e8 else 1}f} MB"


def note(text: str) -> None:
    """Say something beside the answer: dim, and on standard error."""
    print(f"\x1b[2m{text}\x1b[0m" if sys.stderr.isatty() else text, file=sys.stderr)


def say(as_json: bool, document: dict[str, Any], line: str) -> None:
    """Print what was done, as a JSON document or as a line."""
    print_json(document, indent=2) if as_json else print(line)


def print_json(document: Any, indent: int | None = None) -> None:
    """Print one JSON document."""
    print(json.dumps(document, indent=indent, ensure_ascii=False), flush=True)


def draw(*parts: Any, **options: Any) -> None:
    """Print tables and marked-up texts; `options` are those of rich's console."""
    from rich.console import Console

    console = Console(**options)
    for part in parts:
        console.print(part)


def plain_table(headings: Sequence[str], right: Sequence[str] = ()) -> "Table":
    """Return a table without lines; headings on the `right` stand over numbers."""
    from rich.table import Table

    table = Table(box=None, header_style="bold", pad_edge=False)
    for heading in headings:
        table.add_column(heading, justify="right" if heading in right else "left", overflow="fold")
    return table


def stream_answer(pieces: Iterable[str]) -> str:
    """Print an answer as it comes, without the space a model likes to begin with; return the answer."""
    said = ""
    for piece in pieces:
        piece = piece if said else piece.lstrip()
        said += piece
        print(piece, end="", flush=True)
    print()
    if not said.strip():
        note(SILENT)
    return said.strip()
