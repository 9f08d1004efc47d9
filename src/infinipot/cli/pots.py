"""`infinipot pots`: see, remove, export and import kept pots, without a model."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from infinipot.cli.expand import JSON, Given, with_options
from infinipot.cli.screen import draw, megabytes, plain_table, say
from infinipot.errors import InputError, StoreError
from infinipot.recipes.option import Option
from infinipot.recipes.options import STORE
from infinipot.store import Card, PotStore, open_store

app = typer.Typer(help="See, remove, export and import kept pots.", no_args_is_help=True)
Name = Annotated[str, typer.Argument(help="A name from `infinipot pots list`.")]
Target = Annotated[Path, typer.Argument(help="A file to write, or a folder for NAME.pot.")]
Exported = Annotated[Path, typer.Argument(help="A file that `infinipot pots export` wrote.")]
REPLACE = Option("replace", bool, False, "Replace what has that name.")
NAME = Option("name", str, None, "The pot's name.", shown="the file's")


@app.command("list")
@with_options(STORE, JSON)
def list_pots(*, given: Given) -> None:
    """List the pots that are kept."""
    store = open_store(given["store"])
    rows = {name: _card(store, name) for name in store.names()}
    if given["json"] or not rows:
        told = {"store": store.where, "pots": [_told(name, card) for name, card in rows.items()]}
        none = f"no pots in {store.where}: keep one with `infinipot read --file F --save NAME`"
        say(given["json"], told, none)
        return
    from rich.text import Text

    headings = ("POT", "TITLE", "MODEL", "TOKENS", "ENTRIES", "ON DISK", "UPDATED")
    table = plain_table(headings, right=("TOKENS", "ENTRIES", "ON DISK"))
    for name, card in rows.items():
        table.add_row(*(Text(cell) for cell in (name, *_cells(card))))  # a title is not markup
    draw(table)


def _cells(card: Card | StoreError) -> tuple[str, ...]:
    if isinstance(card, StoreError):
        return (str(card),)
    entries = f"{card.fill:,}/{card.capacity:,}"
    return card.title, card.model, f"{card.tokens_read:,}", entries, megabytes(card.bytes), card.updated[:10]


@app.command()
@with_options(STORE, JSON)
def show(name: Name, *, given: Given) -> None:
    """Show what is known of a pot."""
    told = _told(name, open_store(given["store"]).card(name))
    plain = {key: value if isinstance(value, str) else json.dumps(value) for key, value in told.items()}
    say(given["json"], told, "\n".join(f"{key:>14}  {value}" for key, value in plain.items()))


@app.command()
@with_options(STORE, JSON)
def rm(name: Name, *, given: Given) -> None:
    """Delete a pot."""
    open_store(given["store"]).remove(name)
    say(given["json"], {"pot": name, "removed": True}, f"removed pot '{name}'")


@app.command()
@with_options(REPLACE, STORE, JSON)
def export(name: Name, path: Target, *, given: Given) -> None:
    """Write a pot, checked, to a file that `infinipot pots import` takes."""
    path = path / f"{name}.pot" if path.is_dir() else path
    card = open_store(given["store"]).export(name, path, given["replace"])
    say(given["json"], {**_told(name, card), "path": str(path)}, f"wrote pot '{name}' to {path}")


@app.command("import")
@with_options(NAME, REPLACE, STORE, JSON)
def bring(path: Exported, *, given: Given) -> None:
    """Take in an exported pot; the file is checked to the last byte before the pot gets a name."""
    if not path.exists():
        raise InputError(f"cannot read {path}: there is no such file")
    name = path.name.removesuffix(".pot") if given["name"] is None else given["name"]
    card = open_store(given["store"]).bring(path, name, given["replace"])
    say(given["json"], _told(name, card), f"imported pot '{name}': {card.title}")


def _card(store: PotStore, name: str) -> Card | StoreError:
    """A pot's card, or why there is none: one bad file must not hide the others."""
    try:
        return store.card(name)
    except StoreError as error:
        return error


def _told(name: str, card: Card | StoreError) -> dict[str, Any]:
    return {"pot": name, **({"error": str(card)} if isinstance(card, StoreError) else card.to_json())}
