"""`infinipot models`: see, pull and remove models; and the bar that every first pull shows."""

import sys
import time
from collections.abc import Generator
from contextlib import closing
from itertools import chain, groupby
from typing import Annotated, Any

import typer

from infinipot.cli.expand import JSON, Given, with_options
from infinipot.cli.screen import BAR, ELAPSED, bars, draw, gigabytes, megabytes, plain_table, print_json, say
from infinipot.models import cache as store
from infinipot.models import catalog
from infinipot.models.download import Progress
from infinipot.models.memory import available

app = typer.Typer(help="See, pull and remove models.", no_args_is_help=True)
HELP = """* is used when no model is named
NEEDS is the most memory on a CPU with a pot of 4,096 entries (of sentences: beside that); {} are free here"""
Alias = Annotated[str, typer.Argument(help="A name from `infinipot models list`.")]


@app.command("list")
@with_options(JSON)
def list_models(*, given: Given) -> None:
    """List the models that can be pulled by name."""
    sizes = {model.card.alias: model.size for model in store.installed()}
    free = available()
    advised = catalog.advised(free).alias
    every = (*catalog.RELEASES, catalog.SENTENCES)
    rows = [_row(release, sizes.get(release.alias), free, advised) for release in every]
    if given["json"]:
        print_json({"home": str(store.root()), "free_bytes": free, "models": rows}, indent=2)
        return
    headings = ("MODEL", "TITLE", "DOWNLOAD", "INSTALLED", "NEEDS", "FITS HERE")
    table = plain_table(headings, right=("DOWNLOAD", "NEEDS"))
    for column in (0, 2, 4):
        table.columns[column].no_wrap = True
    for row in rows:
        name = f"{row['alias']} *" if row["default"] else row["alias"]
        fits, need = "yes" if row["fits"] else "no", gigabytes(row["memory_bytes"])
        there = megabytes(row["disk_bytes"]) if row["installed"] else "no"
        table.add_row(name, row["title"], megabytes(row["download_bytes"]), there, need, fits)
    draw(table, "", highlight=False)
    for row in rows:
        print(f"{row['alias']}: {row['licence']}; {row['note']}")
    print(HELP.format(gigabytes(free)))
    print(f"\ntake {advised}, the largest that answers questions and fits here: --model {advised}")


@app.command()
@with_options(JSON)
def pull(alias: Alias, *, given: Given) -> None:
    """Download a model and make it ready to load; does nothing when it is already there."""
    from infinipot.hf import gguf, meaning

    release = catalog.find(alias)
    fresh, start = store.card(alias) is None, time.monotonic()
    if release.note and fresh:
        print(f"{release.title}: {release.licence}; {release.note}", file=sys.stderr)
    draw_pull(meaning.pull() if release is catalog.SENTENCES else gguf.pull(alias))
    ready = next(model for model in store.installed() if model.card.alias == alias)
    seconds = round(time.monotonic() - start, 1)
    told = {"alias": alias, "path": str(ready.path), "disk_bytes": ready.size, "pulled": fresh}
    took = f"{seconds:.0f} s" if fresh else "it was already there"
    say(given["json"], {**told, "seconds": seconds}, f"{alias} is ready in {ready.path} ({took})")


@app.command()
@with_options(JSON)
def rm(alias: Alias, *, given: Given) -> None:
    """Delete a pulled model."""
    freed = store.remove(alias)
    say(given["json"], {"alias": alias, "freed_bytes": freed}, f"removed {alias}, {megabytes(freed)} freed")


def draw_pull(progress: Generator[Progress, None, None]) -> None:
    """Run a pull to its end under a bar on stderr; whatever stops us stops the pull too."""
    with closing(progress):
        first = next(progress, None)
        if first is None:  # there is nothing to do and nothing to draw
            return
        with bars("{task.description:<11}", BAR, "{task.fields[amount]}", ELAPSED) as shown:
            for stage, group in groupby(chain([first], progress), key=lambda step: step.stage):
                task = shown.add_task(stage, total=None, amount="")
                for step in group:
                    amount = f"{step.done / 1e6:.0f} of {megabytes(step.total)}" if step.total else ""
                    shown.update(task, completed=step.done, total=step.total or None, amount=amount)
                shown.update(task, completed=1, total=1)


def _row(release: catalog.Release, disk: int | None, free: int, advised: str) -> dict[str, Any]:
    sizes = {"download_bytes": release.size, "disk_bytes": disk, "installed": disk is not None}
    sizes |= {"memory_bytes": release.memory, "fits": release.memory <= free}
    is_one = {"default": release.alias == catalog.DEFAULT_MODEL, "advised": release.alias == advised}
    about = {name: getattr(release, name) for name in ("answers", "format", "licence", "note")}
    return {"alias": release.alias, "title": release.title, **sizes, **is_one, **about}
