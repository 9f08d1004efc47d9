"""`infinipot bench`: speed and memory of recipes on this machine, beside plain transformers."""

import json
import sys
from collections.abc import Generator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from infinipot.cli.expand import Given, with_options
from infinipot.cli.screen import draw, print_json
from infinipot.common.atomic_files import failing_to
from infinipot.common.sizes import short
from infinipot.models.catalog import DEFAULT_MODEL
from infinipot.recipes.option import Option
from infinipot.recipes.options import DECLARED, DEVICE, DTYPE, JSON, MODEL, POT, RECIPE, THREADS, WEIGHTS
from infinipot.text.files import title

if TYPE_CHECKING:
    from infinipot.bench.systems import Measurement

WHAT = "What is measured"
OWN = ("capacity", "catalyst")
POTS = tuple(one for one in DECLARED.values() if one.name not in OWN and one.applies != "recalls")
LENGTHS = Option("lengths", int, None, "Tokens of text: 32k,1m.", least=1, shown="32k")
DOCUMENTS = Option("documents", int, None, "Documents answered at once: 1,8.", least=1)


@with_options(
    replace(MODEL, default=None, shown=DEFAULT_MODEL),
    Option("random", str, None, "Random weights of a shape: llama-3-8b, smollm2, ...", POT, metavar="SHAPE"),
    replace(RECIPE.listed(WHAT), help="Recipes, with commas between."),
    LENGTHS.listed(WHAT),
    replace(DECLARED["capacity"].listed(WHAT), help="KV entries per layer and head: 2k,4k."),
    *POTS,
    Option("new_tokens", int, 64, "Tokens of every answer; the first 8 are not timed.", WHAT),
    DOCUMENTS.listed(WHAT),
    Option("transformers", bool, True, "Measure plain transformers beside the recipes.", WHAT),
    Option("limit", float, 600.0, "Seconds that plain transformers may take for one text.", WHAT),
    DEVICE,
    DTYPE,
    replace(WEIGHTS, default="full", help=f"{WEIGHTS.help} Packed ones leave out plain transformers."),
    THREADS,
    Option("fuse", bool, True, "Fused kernels, on CUDA.", POT),
    Option("out", Path, None, "File for the JSON document.", WHAT),
    replace(JSON, group=WHAT),
)
def bench(*, given: Given) -> None:
    """Measure time to first token, reading, decoding and memory on this machine."""
    from infinipot.bench.plan import Plan

    same = ("new_tokens", "transformers", "limit", "device", "dtype", "weights", "threads", "fuse")
    only = bool(given["documents"]) and given["lengths"] is None  # what was named, and nothing else
    # A model of the user's file is the one for reading; random weights are asked for by name.
    model = None if given["random"] and "model" in given.where else given["model"]
    plan = Plan(
        model=model or ("" if given["random"] else DEFAULT_MODEL),
        random=given["random"] or "",
        recipes=RECIPE.parse_list(given["recipe"]),
        lengths=() if only else LENGTHS.parse_list(given["lengths"] or "32k"),
        capacities=DECLARED["capacity"].parse_list(given["capacity"]),
        options={name: value for name, value in given.of(POTS).items() if value is not None},
        documents=DOCUMENTS.parse_list(given["documents"]) if given["documents"] else (),
        command=("infinipot", *map(title, sys.argv[1:])),
        **{name: given[name] for name in same},
    )
    out, as_json = given["out"], given["json"]
    if out is not None:
        write(out, "")  # before any long work, so that nothing is lost at its end
    from infinipot.bench.benchmark import run

    told = drawn(run(plan), quiet=as_json)
    if out is not None:
        write(out, json.dumps(told, indent=1, ensure_ascii=False) + "\n")
    if as_json:
        print_json(told)
        return
    from infinipot.bench.tables import tables

    draw(*tables(told), width=None if sys.stdout.isatty() else 100, highlight=False)


def write(path: Path, text: str) -> None:
    """Write a file, with its folder."""
    with failing_to(f"write to {path}", "use another `out`"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")


def drawn(work: "Generator[str | Measurement, None, dict[str, Any]]", quiet: bool) -> dict[str, Any]:
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
