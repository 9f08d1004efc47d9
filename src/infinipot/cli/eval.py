"""`infinipot eval`: any recipes on a task, one row an example. `infinipot report`: pages out of such runs."""

import sys
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from infinipot.cli import given as g
from infinipot.cli.estimate import span
from infinipot.cli.expand import Given, with_options
from infinipot.cli.screen import BAR, ELAPSED, LEFT, bars, draw, note, plain_table, print_json
from infinipot.common.suggest import find
from infinipot.errors import ConfigError
from infinipot.eval.tasks.task import ALL, PARTS, make, task_options, tasks
from infinipot.recipes.option import Option
from infinipot.recipes.options import CHOICE, COMPUTING, DECLARED, ENGINE, FORMAT, JSON, RECIPE, SET, SIZES

if TYPE_CHECKING:
    from infinipot.eval.evaluate import Step, Workers
    from infinipot.eval.grid import Grid

EVERY = 30.0  # seconds between lines where nobody watches a bar
SHOWN = 3  # errors and bad rows told one by one
GRID, RUN = "Grid: commas between several values", "Run"
_PROMPTS = (
    "Names, or a text of your own; give it again for several texts. by-task is question in tasks of question "
    "answering, general elsewhere."
)
CATALYST = replace(CHOICE["catalyst"], help=_PROMPTS, shown="the task's", group=GRID, many=True)
ALONE = replace(SIZES["recall"], shown="0: a method is measured alone")
LISTED = tuple(one for one in (RECIPE, *{**DECLARED, "recall": ALONE}.values()) if one.name != "catalyst")
SETS = replace(SET, help="Setting of a recipe, e.g. heavy=4,64.", metavar="NAME=VALUES", group=GRID)
PART = Option("part", str, ALL, "Half of the set: choose settings on tune, show report.", RUN, choices=PARTS)
RUNNING = (
    Option("limit", int, None, "Examples of each part of the task.", RUN, least=1, shown="all"),
    PART,
    Option("seed", int, 0, "Draws keys and hay.", RUN, least=0),
    Option("out", Path, None, "Folder of the run: new, or one to go on with.", RUN, shown="results/TASK"),
)
_ENGINE = "here, or ray: one model a worker of a Ray cluster."
_BATCH = "Answers given together; each has a pot of its own."
WORK = (
    Option("engine", str, "here", _ENGINE, RUN, choices=("here", "ray")),
    Option("address", str, None, "The Ray cluster's.", RUN, shown="one on this machine"),
    Option("workers", int, None, "On a Ray cluster.", RUN, least=1, shown="one a GPU, else one a node"),
    Option("batch", int, None, _BATCH, RUN, least=1, shown="8 on a GPU, else 1"),
)
TASKS = tuple(one for one in task_options() if one.name != PART.name)  # every task has its halves
GRIDS = (*(one.listed(GRID) for one in LISTED), CATALYST, SETS)
Folders = Annotated[list[Path], typer.Argument(metavar="DIR...", help="Folders of runs.")]
Name = Annotated[str, typer.Argument(metavar="TASK", help=f"{', '.join(tasks())}.")]


@with_options(*GRIDS, *TASKS, *RUNNING, *ENGINE, FORMAT, *WORK, JSON)
def evaluate(task: Name, *, given: Given) -> None:
    """Measure recipes on a task: every recipe with every combination of the options that apply to it.

    Rows go to a folder, each as soon as it is known. The same command goes on where it was stopped.
    """
    from infinipot.eval.evaluate import Evaluation
    from infinipot.eval.evaluate import evaluate as run
    from infinipot.eval.folder import read_rows
    from infinipot.eval.results import summary

    kind = find("task", task, tasks(), field="task")
    made = make(task, given.of((*TASKS, PART) if kind.knows_halves else TASKS), given["seed"])
    grid = grid_of(given, kind.catalyst)
    out, part = given["out"] or Path("results") / task, ALL if kind.knows_halves else given["part"]
    wanted = Evaluation(made, grid, out, given["seed"], given["limit"], given["format"], part)
    _watch(run(wanted, _workers(given)), out, quiet=given["json"])
    asked = {cell.name for cell in grid.cells()}
    found = summary([row for row in read_rows(out) if row["kind"] == "bad" or row["cell"] in asked])
    if given["json"]:
        print_json({"out": str(out), **found})
    else:
        _show(found, out)


def grid_of(given: Given, catalyst: str) -> "Grid":
    """Read the lists, and refuse what cannot work before any model is loaded."""
    from infinipot.eval.grid import Grid, catalyst_names

    typed = (one for one in LISTED if given[one.name] is not None)
    values: dict[str, tuple[Any, ...]] = {one.name: one.parse_list(given[one.name]) for one in typed}
    for text in given["set"] or []:
        name, found, value = (part.strip() for part in text.partition("="))
        if not found or not value:
            raise ConfigError(f"'{text}' is no setting", field="set", remedy="use NAME=VALUE,VALUE")
        values[name] = tuple(dict.fromkeys(part.strip() for part in value.split(",") if part.strip()))
    catalysts = catalyst_names(given["catalyst"] or [catalyst])
    grid = Grid(values.pop("recipe"), values.pop("capacity"), catalysts, values)
    grid.cells()
    return grid


def _workers(given: Given) -> "Workers":
    engine, batch = given["engine"], given["batch"]
    if engine == "here":
        for name in ("address", "workers"):
            if given[name]:
                raise ConfigError(f"`{name}` is for `engine` ray", field=name, remedy="leave it out")
        from infinipot.eval.evaluate import Workers

        return Workers(lambda: g.open_engine(given, fused=True), batch)
    if batch:
        problem = "`batch` is for `engine` here: a worker on a cluster has one job at a time"
        raise ConfigError(problem, field="batch")
    from infinipot.engine import open_engine
    from infinipot.eval.ray_engine import RayWorkers

    load = partial(open_engine, given["model"], **given.of(COMPUTING), fused=True)
    return RayWorkers(load, given["address"], given["workers"])


def _watch(steps: "Iterator[Step]", out: Path, quiet: bool) -> None:
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


def _bar(steps: "Iterator[Step]") -> None:
    columns = (BAR, "{task.fields[rows]} rows", ELAPSED, "to go", LEFT, "{task.fields[cell]}")
    with bars(*columns, transient=True, speed_estimate_period=600) as shown:
        task = shown.add_task("", total=1.0, rows="loading, 0", cell="")
        for step in steps:
            shown.update(task, completed=step.work, rows=f"{step.done:,} of {step.total:,}", cell=_cell(step))


def _lines(steps: "Iterator[Step]") -> None:
    started, told, first = time.monotonic(), time.monotonic(), 0.0
    for number, step in enumerate(steps):
        if number == 0:
            started, first = time.monotonic(), step.work
            note(f"{step.done:,} of {step.total:,} rows are done already")
        elif time.monotonic() - told >= EVERY:
            told = time.monotonic()
            left = (told - started) * (1 - step.work) / max(1e-9, step.work - first)
            note(f"{step.done:,} of {step.total:,} rows, about {span(left)} left; {_cell(step)}")


def _cell(step: "Step") -> str:
    return f"{step.cell}: {100 * step.mean:.1f}" if step.mean is not None else step.cell


def _show(found: dict[str, Any], out: Path) -> None:
    """Print a line a cell, then what went wrong."""
    numbers = ("score", "95%", "rows", "errors", "s a row")
    table = plain_table(("cell", *numbers), right=numbers)
    for cell in found["cells"]:
        score = "" if cell["score"] is None else f"{100 * cell['score']:.1f}"
        span = "{:.1f} to {:.1f}".format(*(100 * x for x in cell["interval"])) if cell["interval"] else ""
        counts = (str(cell["rows"]), str(cell["errors"] or ""), f"{cell['seconds']:.2f}")
        table.add_row(cell["cell"], score, span, *counts)
    draw(table, markup=False, highlight=False)
    for what in ("errors", "bad"):
        for text in found[what][:SHOWN]:
            note(text)
        if len(found[what]) > SHOWN:
            note(f"and {len(found[what]) - SHOWN} more like these")
    note(f"rows: {out / 'rows.jsonl'}; tables and pictures: infinipot report {out}")


@with_options(
    Option("out", Path, None, "Where to write.", shown="report, in the folder where there is one only"),
    Option("mix", bool, False, "Allow runs that differ in more than their cells."),
    replace(JSON, help="Print the names of the files as one JSON document.", group=""),
)
def report(folders: Folders, *, given: Given) -> None:
    """Compare runs: Markdown and CSV tables, pictures, and one HTML page with everything in it."""
    from infinipot.eval.report import report as write

    place = given["out"] or (folders[0] / "report" if len(folders) == 1 else Path("report"))
    written = write(folders, place, given["mix"])
    if given["json"]:
        print_json({"out": str(place), "files": [str(path) for path in written]})
        return
    print(next(path for path in written if path.suffix == ".md").read_text("utf-8"))
    note(f"the page: {written[0]}, and {len(written) - 1} files beside it")
