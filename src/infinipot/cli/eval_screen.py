"""What an evaluation looks like on a terminal: a bar with what is left, then one line a cell."""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from infinipot.cli.screen import BAR, ELAPSED, LEFT, bars, note, plain_table

if TYPE_CHECKING:
    from infinipot.eval.evaluate import Step

EVERY = 30.0  # seconds between lines where nobody watches a bar
SHOWN = 3  # errors and bad rows told one by one


def watch(steps: Iterator[Step], out: Path, quiet: bool) -> None:
    """Run an evaluation to its end; say how to go on where it is stopped."""
    seen: deque[Step] = deque(maxlen=1)  # the last step
    passing = (seen.append(step) or step for step in steps)  # type: ignore[func-returns-value]
    try:
        if quiet:
            deque(passing, maxlen=0)
        else:
            (_bar if sys.stderr.isatty() else _lines)(passing)
    except KeyboardInterrupt:
        for last in seen:
            note(f"stopped: {last.done:,} of {last.total:,} rows are in {out}; run the same command to go on")
        raise


def _bar(steps: Iterator[Step]) -> None:
    columns = (BAR, "{task.fields[rows]} rows", ELAPSED, "to go", LEFT, "{task.fields[cell]}")
    with bars(*columns, transient=True, speed_estimate_period=600) as shown:
        task = shown.add_task("", total=1.0, rows="loading, 0", cell="")
        for step in steps:
            shown.update(task, completed=step.work, rows=f"{step.done:,} of {step.total:,}", cell=_cell(step))


def _lines(steps: Iterator[Step]) -> None:
    started, told, first = time.monotonic(), time.monotonic(), 0.0
    for number, step in enumerate(steps):
        if number == 0:
            started, first = time.monotonic(), step.work
            note(f"{step.done:,} of {step.total:,} rows are there")
        elif time.monotonic() - told >= EVERY:
            told = time.monotonic()
            left = (told - started) * (1 - step.work) / max(1e-9, step.work - first)
            note(f"{step.done:,} of {step.total:,} rows, about {_span(left)} left; {_cell(step)}")


def _cell(step: Step) -> str:
    return f"{step.cell}: {100 * step.mean:.1f}" if step.mean is not None else step.cell


def _span(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"


def show(found: dict[str, Any], out: Path) -> None:
    """Print a line a cell, then what went wrong."""
    from rich.console import Console

    numbers = ("score", "95%", "rows", "errors", "s a row")
    table = plain_table(("cell", *numbers), right=numbers)
    for cell in found["cells"]:
        score = "" if cell["score"] is None else f"{100 * cell['score']:.1f}"
        span = "{:.1f} to {:.1f}".format(*(100 * x for x in cell["interval"])) if cell["interval"] else ""
        counts = (str(cell["rows"]), str(cell["errors"] or ""), f"{cell['seconds']:.2f}")
        table.add_row(cell["cell"], score, span, *counts)
    Console(markup=False, highlight=False).print(table)
    for what in ("errors", "bad"):
        for text in found[what][:SHOWN]:
            note(text)
        if len(found[what]) > SHOWN:
            note(f"and {len(found[what]) - SHOWN} more like these")
    note(f"rows: {out / 'rows.jsonl'}; tables and pictures: infinipot report {out}")
