"""`infinipot bench`: speed and memory of recipes on this machine, beside plain transformers."""

from __future__ import annotations

import json
import sys
from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from infinipot.cli import options as o
from infinipot.common.sizes import short, size
from infinipot.errors import ConfigError, InputError
from infinipot.models.catalog import DEFAULT_MODEL
from infinipot.text.files import title

if TYPE_CHECKING:
    from infinipot.bench.systems import Measurement

WHAT = "What is measured"


def _option(help: str, panel: str = WHAT, *names: str, **more: Any) -> Any:
    return typer.Option(*names, help=help, rich_help_panel=panel, **more)


Model = Annotated[
    str | None,
    _option("Alias, hub id, folder or .gguf file.", o.MODEL, "--model", "-m", show_default=DEFAULT_MODEL),
]
Random = Annotated[
    str | None, _option("Random weights of a shape: llama-3-8b, smollm2, ...", o.MODEL, metavar="SHAPE")
]
Recipes = Annotated[str, _option("Recipes, with commas between.", WHAT, "--recipe", "-r")]
Lengths = Annotated[str | None, _option("Tokens of text: 32k,1m.", show_default="32k")]
Capacities = Annotated[str, _option("KV entries per layer and head: 2k,4k.", WHAT, "--capacity")]
NewTokens = Annotated[int, _option("Tokens of every answer; the first 8 are not timed.")]
Documents = Annotated[str | None, _option("Documents answered at once: 1,8.", show_default=False)]
Beside = Annotated[
    bool, _option("Measure plain transformers beside the recipes.", WHAT, "--transformers/--no-transformers")
]
Limit = Annotated[float, _option("Seconds that plain transformers may take for one text.")]
Threads = Annotated[int | None, _option("Threads to compute with.", o.MODEL, show_default="torch's")]
Fuse = Annotated[bool, _option("Fused kernels, on CUDA.", o.MODEL, "--fuse/--no-fuse")]
Out = Annotated[Path | None, _option("File for the JSON document.", WHAT, show_default=False)]
Json = Annotated[bool, _option("Print exactly one JSON document.", WHAT, "--json")]


def bench(
    model: Model = None,
    random: Random = None,
    recipe: Recipes = "infinipot",
    lengths: Lengths = None,
    capacity: Capacities = "4096",
    keep: o.Keep = None,
    tail: o.Tail = None,
    pool: o.Pool = None,
    new_tokens: NewTokens = 64,
    documents: Documents = None,
    transformers: Beside = True,
    limit: Limit = 600.0,
    device: o.Device = "auto",
    dtype: o.Dtype = "auto",
    threads: Threads = None,
    fuse: Fuse = True,
    out: Out = None,
    as_json: Json = False,
) -> None:
    """Measure time to first token, reading, decoding and memory on this machine."""
    from infinipot.bench.plan import Plan

    options = {"keep": keep, "tail": tail and tail.value, "pool": pool}
    only = bool(documents) and lengths is None  # what was named, and nothing else
    plan = Plan(
        model=model or ("" if random else DEFAULT_MODEL),
        random=random or "",
        recipes=tuple(part.strip() for part in recipe.split(",") if part.strip()),
        lengths=() if only else sizes(lengths or "32k", "lengths"),
        capacities=sizes(capacity, "capacity"),
        options={name: value for name, value in options.items() if value is not None},
        new_tokens=new_tokens,
        documents=sizes(documents, "documents") if documents else (),
        transformers=transformers,
        limit=limit,
        device=device,
        dtype=dtype,
        threads=threads,
        fuse=fuse,
        command=("infinipot", *map(title, sys.argv[1:])),
    )
    if out is not None:
        write(out, "")  # before any long work, so that nothing is lost at its end
    from infinipot.bench.benchmark import run

    told = drawn(run(plan), quiet=as_json)
    if out is not None:
        write(out, json.dumps(told, indent=1, ensure_ascii=False) + "\n")
    if as_json:
        print(json.dumps(told, ensure_ascii=False))
        return
    from infinipot.bench.tables import tables

    show(tables(told))


def sizes(text: str, name: str) -> tuple[int, ...]:
    """Read 4096, 32k or 1m, or several with commas between."""
    try:
        found = tuple(dict.fromkeys(size(part.strip()) for part in text.split(",") if part.strip()))
    except ValueError as error:
        found, text = (), str(error)
    if not found:
        raise ConfigError(f"`{name}` is '{text}'", field=name, remedy="use numbers such as 4096, 32k or 1m")
    return found


def write(path: Path, text: str) -> None:
    """Write a file, with its folder."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    except OSError as error:
        raise InputError(f"cannot write to {path} ({error.strerror})", remedy="use another `out`") from error


def drawn(work: Generator[str | Measurement, None, dict[str, Any]], quiet: bool) -> dict[str, Any]:
    """Do the work; say what is being done where a person watches, and a line for every row unless quiet."""
    from rich.console import Console

    console = Console(stderr=True)
    with console.status("starting") as status:
        if quiet or not sys.stderr.isatty():
            status.stop()
        while True:
            try:
                one = next(work)
            except StopIteration as end:
                told: dict[str, Any] = end.value
                return told
            if isinstance(one, str):
                status.update(one)
            elif not quiet:
                time = f"first token after {one.first_token_s:.2f} s" if not one.failed else one.failed
                line = f"{one.system} at {short(one.length)}: {time}"
                console.print(line, style="dim", highlight=False, markup=False, soft_wrap=True)


def show(parts: Any) -> None:
    """Print tables, at a hundred columns where no terminal says otherwise."""
    from rich.console import Console

    console = Console(width=None if sys.stdout.isatty() else 100)
    for part in parts:
        console.print(part, highlight=False)
