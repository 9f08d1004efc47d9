"""`infinipot bench`: speed and memory of recipes, beside what people would use instead."""

from __future__ import annotations

import json
import sys
from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from infinipot.cli import options as o
from infinipot.cli.screen import note
from infinipot.errors import InputError
from infinipot.models.catalog import DEFAULT_MODEL
from infinipot.text.files import title

if TYPE_CHECKING:
    from infinipot.bench.plan import Plan
    from infinipot.bench.rows import Row
    from infinipot.bench.steps import Step

WHAT, PEERS = "What is measured", "Peers"


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
Chunk = Annotated[
    str | None,
    _option("Side by side with peers in alternating rounds: 2048+2048.", metavar="NEW+CACHED"),
]
Rounds = Annotated[int, _option("Alternating rounds, of which medians are taken.")]
Shares = Annotated[bool, _option("Take a steady cycle apart.", WHAT, "--shares/--no-shares")]
Peers = Annotated[
    str, _option("all, none, or transformers, transformers-static, kvpress-snapkv, llama.cpp.", PEERS)
]
PeerLimit = Annotated[float, _option("Seconds a peer may take for one text.", PEERS)]
Kvpress = Annotated[
    str, _option("Interpreter that has kvpress.", PEERS, metavar="PYTHON", show_default=False)
]
Llama = Annotated[
    str, _option("Interpreter that has llama-cpp-python.", PEERS, metavar="PYTHON", show_default="ours")
]
Gguf = Annotated[str, _option("What llama.cpp reads.", PEERS, metavar="FILE", show_default=False)]
Threads = Annotated[int | None, _option("Threads to compute with.", o.MODEL, show_default="torch's")]
Fuse = Annotated[bool, _option("Fused kernels, on CUDA.", o.MODEL, "--fuse/--no-fuse")]
Out = Annotated[
    Path | None, _option("Folder for bench.json and figure7.png, .svg.", WHAT, show_default=False)
]
Json = Annotated[bool, _option("Print exactly one JSON document.", WHAT, "--json")]


def bench(
    model: Model = None,
    random: Random = None,
    recipe: Recipes = "infinipot",
    lengths: Lengths = None,
    capacity: Capacities = "4096",
    keep: o.Keep = None,
    new_tokens: NewTokens = 64,
    documents: Documents = None,
    chunk: Chunk = None,
    rounds: Rounds = 7,
    shares: Shares = True,
    peers: Peers = "all",
    peer_limit: PeerLimit = 600.0,
    kvpress: Kvpress = "",
    llama: Llama = "",
    gguf: Gguf = "",
    device: o.Device = "auto",
    dtype: o.Dtype = "auto",
    threads: Threads = None,
    fuse: Fuse = True,
    out: Out = None,
    as_json: Json = False,
) -> None:
    """Measure time to first token, reading, decoding and memory, and draw the paper's Figure 7."""
    from infinipot.bench import plan as p

    only = bool(chunk or documents) and lengths is None  # what was named, and nothing else
    plan = p.Plan(
        model=model or ("" if random else DEFAULT_MODEL),
        random=random or "",
        recipes=p.words(recipe),
        lengths=() if only else p.numbers(lengths or "32k", "lengths"),
        capacities=p.numbers(capacity, "capacity"),
        keep=keep,
        new_tokens=new_tokens,
        documents=p.numbers(documents, "documents") if documents else (),
        chunk=p.chunk(chunk) if chunk else None,
        rounds=rounds,
        shares=shares,
        peers=p.peers(peers, _cpu(device) if peers == "all" else False),
        peer_limit=peer_limit,
        device=device,
        dtype=dtype,
        threads=threads,
        fuse=fuse,
        kvpress=kvpress,
        llama=llama,
        gguf=gguf,
        command=("infinipot", *map(title, sys.argv[1:])),
    )
    folder = _folder(out)
    told = _drawn(_started(plan), quiet=as_json)
    notes = _keep(told, folder) if folder else []
    _show(told, notes, as_json)


def _cpu(device: str) -> bool:
    from infinipot.hf.loading import choose_device

    return choose_device(device).type == "cpu"


def _folder(out: Path | None) -> Path | None:
    """Make the folder before any long work, so that nothing is lost at its end."""
    if out is None:
        return None
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot write to {out} ({error.strerror}): use another --out") from error
    return out


def _started(plan: Plan) -> Generator[Step | Row, None, dict[str, Any]]:
    from infinipot.bench.run import run

    return run(plan)


def _drawn(work: Generator[Step | Row, None, dict[str, Any]], quiet: bool) -> dict[str, Any]:
    """Do the work; a bar where a person watches, else a line for every row, nothing if quiet."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    from infinipot.bench.steps import Step

    columns = (TextColumn("{task.description}"), BarColumn(bar_width=24), TimeElapsedColumn())
    watched = sys.stderr.isatty() and not quiet
    with Progress(
        *columns, console=Console(stderr=True), transient=True, refresh_per_second=2, disable=not watched
    ) as bars:
        task = bars.add_task("starting", total=None)
        while True:
            try:
                one = next(work)
            except StopIteration as end:
                told: dict[str, Any] = end.value
                return told
            if isinstance(one, Step):
                bars.update(task, description=one.label, completed=one.done, total=one.total or None)
            elif not quiet:
                _say(one, bars if watched else None)


def _say(row: Row, bars: Any) -> None:
    """One line about a finished row."""
    from infinipot.bench.plan import shown

    time = f"first token after {row.first_token_s:.2f} s" if row.first_token_s is not None else row.failed
    line = f"{row.system} at {shown(row.length)}: {time}"
    if bars is not None:
        bars.console.print(line, style="dim", highlight=False, markup=False)
    else:
        note(line)


def _keep(told: dict[str, Any], folder: Path) -> list[str]:
    """Write the raw numbers, then the picture; return what there is to say about it."""
    (folder / "bench.json").write_text(json.dumps(told, indent=1, ensure_ascii=False) + "\n", "utf-8")
    found = [f"written: {folder / 'bench.json'}"]
    if told["rows"]:
        from infinipot.bench.figure import draw

        try:
            found += [f"written: {path}" for path in draw(told, folder)]
        except ImportError as error:
            found.append(f"no picture: {error}")
    return found


def _show(told: dict[str, Any], notes: list[str], as_json: bool) -> None:
    if as_json:
        print(json.dumps(told, ensure_ascii=False))
        return
    from rich.console import Console

    from infinipot.bench.tables import tables

    console = Console(width=None if sys.stdout.isatty() else 100)
    for part in tables(told):
        console.print(part, highlight=False)
    for line in notes:
        note(line)
