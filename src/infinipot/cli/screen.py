"""What reading looks like on a terminal: a bar while it lasts, a line when it is done."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from infinipot.models.peak_memory import peak_memory_bytes

if TYPE_CHECKING:
    from infinipot.reading.reader import Progress, Reader
    from infinipot.recipes.recipe import Recipe


class Meter:
    """Passes text through and counts its characters, so that a bar knows how far reading is."""

    def __init__(self, pieces: Iterable[str], total: int | None) -> None:
        self._pieces, self.total, self.seen = pieces, total, 0

    def __iter__(self) -> Iterator[str]:
        for piece in self._pieces:
            self.seen += len(piece)
            yield piece


def watch_reading(reader: Reader, meter: Meter, label: str = "reading") -> None:
    """Read the metered text to its end; draw a bar when a person is watching."""
    if not sys.stderr.isatty():
        reader.read(meter)
        return
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bars

    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        TextColumn("{task.fields[state]}"),
        TimeElapsedColumn(),
    )
    with Bars(*columns, console=Console(stderr=True), transient=True) as bars:
        task = bars.add_task(label, total=meter.total, state="")
        for step in reader.reading(meter):
            done = meter.seen * step.tokens_read / max(1, step.tokens_read + step.waiting)
            bars.update(task, completed=done, state=_state(step, str(reader.model.device)))


def _state(step: Progress, device: str) -> str:
    pot = f"pot {step.fill:,}/{step.capacity:,}" if step.capacity else f"cache {step.fill:,}, growing"
    return (
        f"{step.tokens_read:,} tokens  {rate(step):,.0f}/s  {step.cycles} cycles  "
        f"{pot}  {gigabytes(peak_memory_bytes(device))}"
    )


def summary(reader: Reader, recipe: Recipe | None = None) -> str:
    """One line about what was read, and what the reader of it must know of the recipe."""
    step, peak = reader.progress(), peak_memory_bytes(str(reader.model.device))
    pot = f"pot of {step.capacity:,} entries" if step.capacity else f"{step.fill:,} entries, not bounded"
    cut = reader.mode.prompt == "truncate"  # nothing was read yet, or only both ends
    took = "taken in" if cut else f"read in {step.seconds:.1f} s ({rate(step):,.0f}/s)"
    return (
        f"{step.tokens_read:,} tokens {took}, {step.cycles} cycles, {pot}, peak memory {gigabytes(peak)}"
        + (f"; {recipe.preset.name}: {recipe.note}" if recipe and recipe.note else "")
    )


def rate(step: Progress) -> float:
    """Tokens a second."""
    return step.tokens_read / step.seconds if step.seconds else 0.0


def gigabytes(count: int) -> str:
    """Bytes as people read them."""
    return f"{count / 1e9:.2f} GB"


def note(text: str) -> None:
    """Say something beside the answer: dim, and on standard error."""
    if sys.stderr.isatty():
        print(f"\x1b[2m{text}\x1b[0m", file=sys.stderr)
    else:
        print(text, file=sys.stderr)


def stream_answer(pieces: Iterable[str]) -> str:
    """Print an answer as it comes, without the space a model likes to begin with; return it."""
    said = ""
    for piece in pieces:
        piece = piece if said else piece.lstrip()
        said += piece
        print(piece, end="", flush=True)
    print()
    return said.strip()
