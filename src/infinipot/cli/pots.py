"""`infinipot pots`: see, remove, export and import kept pots.

Parses, calls the store and prints. No model is loaded; torch only to check a file to its last byte.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from infinipot.cli.kept import Store
from infinipot.errors import InputError, StoreError
from infinipot.store import Card, PotStore, open_store

app = typer.Typer(help="See, remove, export and import kept pots.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(help="A name from `infinipot pots list`.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
Replace = Annotated[bool, typer.Option("--replace", help="Replace what has that name.")]


@app.command("list")
def list_pots(store: Store = None, as_json: Json = False) -> None:
    """List the pots that are kept."""
    shop = open_store(store)
    rows = {name: _card(shop, name) for name in shop.names()}
    if as_json:
        found = [_told(name, card) for name, card in rows.items()]
        _print_json({"store": shop.where, "pots": found})
        return
    if not rows:
        print(f"no pots in {shop.where}: keep one with `infinipot read --file F --save NAME`")
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, header_style="bold", pad_edge=False)
    for heading in ("POT", "TITLE", "MODEL", "TOKENS", "ENTRIES", "ON DISK", "UPDATED"):
        table.add_column(heading, justify="right" if heading in ("TOKENS", "ENTRIES", "ON DISK") else "left")
    for name, card in rows.items():
        table.add_row(*(Text(cell) for cell in (name, *_cells(card))))  # a title is not markup
    Console().print(table)


def _cells(card: Card | StoreError) -> tuple[str, ...]:
    if isinstance(card, StoreError):
        return (str(card),)
    entries = f"{card.fill:,}/{card.capacity:,}"
    return card.title, card.model, f"{card.tokens_read:,}", entries, _megabytes(card.bytes), card.updated[:10]


@app.command()
def show(name: Name, store: Store = None, as_json: Json = False) -> None:
    """Show what is known of a pot."""
    told = _told(name, open_store(store).card(name))
    if as_json:
        _print_json(told)
        return
    for key, value in told.items():
        print(f"{key:>14}  {value if isinstance(value, str) else json.dumps(value)}")


@app.command()
def rm(name: Name, store: Store = None, as_json: Json = False) -> None:
    """Delete a pot."""
    shop = open_store(store)
    shop.remove(name)
    _print_json({"pot": name, "removed": True}) if as_json else print(f"removed pot '{name}'")


@app.command()
def export(
    name: Name,
    path: Annotated[Path, typer.Argument(help="A file to write, or a folder for NAME.pot.")],
    replace: Replace = False,
    store: Store = None,
    as_json: Json = False,
) -> None:
    """Write a pot, checked, to a file that `infinipot pots import` takes."""
    path = path / f"{name}.pot" if path.is_dir() else path
    card = open_store(store).export(name, path, replace)
    _print_json({**_told(name, card), "path": str(path)}) if as_json else print(
        f"wrote pot '{name}' to {path}"
    )


@app.command("import")
def bring(
    path: Annotated[Path, typer.Argument(help="A file that `infinipot pots export` wrote.")],
    name: Annotated[str | None, typer.Option(help="The pot's name.", show_default="the file's")] = None,
    replace: Replace = False,
    store: Store = None,
    as_json: Json = False,
) -> None:
    """Take in an exported pot; it is checked to the last byte before it gets a name."""
    if not path.exists():
        raise InputError(f"cannot read {path}: there is no such file")
    name = path.name.removesuffix(".pot") if name is None else name
    card = open_store(store).bring(path, name, replace)
    _print_json(_told(name, card)) if as_json else print(f"pot '{name}' is there: {card.title}")


def _card(shop: PotStore, name: str) -> Card | StoreError:
    """A pot's card, or why there is none: one bad file must not hide the others."""
    try:
        return shop.card(name)
    except StoreError as error:
        return error


def _told(name: str, card: Card | StoreError) -> dict[str, Any]:
    return {"pot": name, **({"error": str(card)} if isinstance(card, StoreError) else card.to_json())}


def _megabytes(count: int) -> str:
    return f"{count / 1e6:,.1f} MB"


def _print_json(document: dict[str, Any]) -> None:
    print(json.dumps(document, indent=2))
