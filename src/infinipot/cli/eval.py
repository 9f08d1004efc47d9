"""`infinipot eval`: any recipes on a task, one row an example; a run that was stopped goes on."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from infinipot.cli import options as o
from infinipot.cli.eval_screen import show, watch
from infinipot.cli.expand import with_options
from infinipot.errors import ConfigError
from infinipot.eval.tasks.registry import make, task_options, tasks
from infinipot.models.catalog import DEFAULT_MODEL

if TYPE_CHECKING:
    from infinipot.eval.evaluate import Evaluation, Workers
    from infinipot.eval.grid import Grid

GRID, RUN = "Grid: commas between several values", "Run"
Text = str | None


def _grid(help: str, default: str = "the recipe's", **more: Any) -> Any:
    return typer.Option(help=help, show_default=default, rich_help_panel=GRID, **more)


def _run(help: str, default: str | bool = True, **more: Any) -> Any:
    return typer.Option(help=help, show_default=default, rich_help_panel=RUN, **more)


Name = Annotated[str, typer.Argument(metavar="TASK", help=f"{', '.join(tasks())}.")]
Recipes = Annotated[
    str, typer.Option("--recipe", "-r", help="Recipes; `infinipot recipes` lists them.", rich_help_panel=GRID)
]
Capacities = Annotated[str, typer.Option(help="KV entries, e.g. 1024,4k.", rich_help_panel=GRID)]
Keeps = Annotated[Text, _grid("Entries left after a distillation, or their share: 1024 or 0.5.", "half")]
Steps = Annotated[Text, _grid("Entries dropped at a time, where a recipe drops step by step.")]
Novelties = Annotated[Text, _grid("Shares of kept entries chosen by novelty.", "0.5")]
Pools = Annotated[Text, _grid("Neighbouring slots whose scores are pooled.", "7; 1 = off")]
Catalysts = Annotated[
    list[str] | None,
    _grid(
        "Names, or a text of your own; give it again for several texts. by-task is question where a task "
        "asks one, general elsewhere.",
        "question; by-task for longbench",
    ),
]
Sets = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="NAME=VALUES", help="Setting of a recipe, e.g. heavy=4,64.", rich_help_panel=GRID
    ),
]
Limit = Annotated[int | None, _run("Examples of each part of the task.", "all", min=1)]
Seed = Annotated[int, _run("Draws keys and hay.", min=0)]
Out = Annotated[Path | None, _run("Folder of the run: new, or one to go on with.", "results/TASK")]
Engine = Annotated[str, _run("here, or ray: one model a worker of a Ray cluster.", metavar="here|ray")]
Address = Annotated[Text, _run("The Ray cluster's.", "one on this machine")]
Batch = Annotated[
    int | None,
    typer.Option(
        help="Answers given together; each has a pot of its own.",
        show_default="8 on a GPU, else 1",
        min=1,
        rich_help_panel=RUN,
    ),
]
Workers_ = Annotated[
    int | None,
    typer.Option(
        "--workers",
        help="On a Ray cluster.",
        show_default="one a GPU, else one a node",
        min=1,
        rich_help_panel=RUN,
    ),
]


@with_options(task_options())
def evaluate(
    task: Name,
    recipe: Recipes = "infinipot",
    capacity: Capacities = "4096",
    keep: Keeps = None,
    step: Steps = None,
    novelty: Novelties = None,
    pool: Pools = None,
    catalyst: Catalysts = None,
    settings: Sets = None,
    tail: o.Tail = None,
    limit: Limit = None,
    seed: Seed = 0,
    out: Out = None,
    model: o.ModelName = DEFAULT_MODEL,
    format: o.FormatOption = None,
    device: o.Device = "auto",
    dtype: o.Dtype = "auto",
    engine: Engine = "here",
    address: Address = None,
    workers: Workers_ = None,
    batch: Batch = None,
    as_json: o.Json = False,
    *,
    given: Mapping[str, Any],
) -> None:
    """Measure recipes on a task: every recipe with every combination of the options that apply to it.

    Rows go to a folder, each as soon as it is known. The same command goes on where it was stopped.
    """
    from infinipot.eval.evaluate import Evaluation

    made = make(task, given, seed)
    knobs = _knobs(novelty, pool, settings or [])
    catalysts = catalyst or [tasks()[task].catalyst]
    grid = _grid_of(recipe, capacity, keep, step, catalysts, knobs, tail and tail.value)
    wanted = Evaluation(
        made, grid, out or Path("results") / task, seed, limit, format.value if format else None
    )
    _finish(wanted, _workers(engine, address, workers, batch, model, device, dtype), as_json)


def _finish(wanted: Evaluation, workers: Workers, as_json: bool) -> None:
    from infinipot.eval.evaluate import evaluate as run
    from infinipot.eval.folder import read_rows
    from infinipot.eval.results import summary

    watch(run(wanted, workers), wanted.out, quiet=as_json)
    rows = read_rows(wanted.out)
    asked = {cell.name for cell in wanted.grid.cells()}
    found = summary([row for row in rows if row["kind"] == "bad" or row["cell"] in asked])
    if as_json:
        print(json.dumps({"out": str(wanted.out), **found}, ensure_ascii=False))
    else:
        show(found, wanted.out)


def _grid_of(
    recipe: str,
    capacity: str,
    keep: str | None,
    step: str | None,
    catalysts: Iterable[str],
    knobs: dict[str, tuple[str, ...]],
    tail: Any,
) -> Grid:
    """Read the lists, and refuse what cannot work before any model is loaded."""
    from infinipot.eval import lists
    from infinipot.eval.grid import Grid

    sizes = "sizes such as 2048 or 4k"
    grid = Grid(
        lists.several("recipe", recipe, str, "names"),
        lists.several("capacity", capacity, lists.size, sizes),
        lists.several("keep", keep, lists.size_or_share, f"{sizes}, or shares such as 0.5") if keep else (),
        lists.several("step", step, lists.size, sizes) if step else (),
        lists.names(catalysts),
        knobs,
        tail,
    )
    grid.cells()
    return grid


def _knobs(novelty: str | None, pool: str | None, settings: list[str]) -> dict[str, tuple[str, ...]]:
    from infinipot.eval import lists

    given = {"novelty": novelty, "pool": pool}
    for text in settings:
        name, found, value = (part.strip() for part in text.partition("="))
        if not found or not value:
            raise ConfigError(f"'{text}' is no setting: use NAME=VALUE, with commas between several")
        given[name] = value
    return {name: tuple(lists.parts(value)) for name, value in given.items() if value}


def _workers(
    engine: str,
    address: str | None,
    workers: int | None,
    batch: int | None,
    model: str,
    device: str,
    dtype: str,
) -> Workers:
    if engine not in ("here", "ray"):
        raise ConfigError(f"unknown engine '{engine}'; use here or ray")
    if engine == "ray" and batch:
        raise ConfigError("--batch is for --engine here: a worker on a cluster has one job at a time")
    if engine == "ray":
        from functools import partial

        from infinipot.engine import open_engine
        from infinipot.eval.ray_engine import RayWorkers

        return RayWorkers(partial(open_engine, model, device, dtype, fused=True), address, workers)
    if address or workers:
        raise ConfigError("--address and --workers are for --engine ray")
    from infinipot.eval.evaluate import Here

    return Here(lambda: o.open_engine(model, device, dtype, fused=True), batch)
