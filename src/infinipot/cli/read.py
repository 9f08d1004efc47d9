"""`infinipot read`: read files of any length into a pot, and keep the pot."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace as changed
from itertools import chain
from typing import TYPE_CHECKING, Annotated, Any

import typer

from infinipot.cli import options as o
from infinipot.cli.ask import Files, open_files
from infinipot.cli.kept import Kept, Store, find
from infinipot.cli.screen import Meter, note, summary, watch_reading
from infinipot.core.config import DEFAULT_CAPACITY
from infinipot.errors import InputError
from infinipot.models.catalog import DEFAULT_MODEL
from infinipot.models.peak_memory import peak_memory_bytes
from infinipot.reading.catalyst import catalyst_text
from infinipot.store import PotStore, open_store
from infinipot.text.files import title as named

if TYPE_CHECKING:
    from infinipot.engine import Engine
    from infinipot.reading.reader import Reader
    from infinipot.recipes.recipe import Recipe
    from infinipot.store.card import Card, Encoding

BETWEEN = "\n\n"  # as between files

Save = Annotated[str | None, typer.Option(metavar="NAME", help="Keep the pot under this name.")]
Append = Annotated[str | None, typer.Option(metavar="NAME", help="Read on where this kept pot ended.")]
Replace = Annotated[bool, typer.Option("--replace", help="With --save: replace a pot of that name.")]
Title = Annotated[str | None, typer.Option(help="What the text is called.", show_default="the file's name")]
Int8 = Annotated[bool, typer.Option("--int8", help="Keep keys and values in int8: smaller, not exact.")]


def read(
    ctx: typer.Context,
    file: Files = None,
    save: Save = None,
    append: Append = None,
    replace: Replace = False,
    title: Title = None,
    int8: Int8 = False,
    store: Store = None,
    model: o.ModelName = DEFAULT_MODEL,
    recipe: o.RecipeName = "infinipot",
    capacity: o.Capacity = DEFAULT_CAPACITY,
    keep: o.Keep = None,
    step: o.Step = None,
    settings: o.Set = None,
    novelty: o.Novelty = None,
    catalyst: o.Catalyst = None,
    pool: o.Pool = None,
    pooling: o.PoolKind = None,
    opening: o.Opening = 0,
    tail: o.Tail = None,
    format: o.FormatOption = None,
    device: o.Device = "auto",
    dtype: o.Dtype = "auto",
    as_json: o.Json = False,
) -> None:
    """Read text of any length in a pot of fixed size, and keep the pot for `infinipot ask --pot`."""
    catalyst_text(catalyst or "general")
    name, shop = target(save, append, replace), open_store(store)
    meter = open_files(file or [])
    with shop.lock(name):  # from before the first token on: nobody reads an hour for nothing
        kept = find(ctx, shop, name) if append is not None else None
        if kept is None:
            shop.refuse(name, replace)
        method = (
            kept.recipe(catalyst)
            if kept
            else o.recipe(
                recipe,
                settings,
                capacity=capacity,
                keep=keep,
                step=step,
                opening=opening,
                tail=tail and tail.value,
                catalyst=catalyst,
                novelty=novelty,
                pool=pool,
                pooling=pooling and pooling.value,
            )
        )
        started = time.perf_counter()
        engine = kept.engine(device, dtype) if kept else o.open_engine(model, device, dtype)
        chosen = method if kept else changed(method, format=format.value if format else engine.format)
        reader = engine.reader(chosen)
        if kept:
            kept.into(reader, engine, chosen)
        loaded = time.perf_counter()
        text = Source(chain([BETWEEN], meter) if kept else meter)
        watch_reading(reader, Meter(text, meter.total))
        done = time.perf_counter()
        called = title if title is not None else "" if kept else ", ".join(map(_title, file or []))
        card = _card(engine, chosen, reader, text, called, kept, int8)
        card = shop.save(name, reader.state(), card, replace=replace or kept is not None)
    seconds = {"load": loaded - started, "read": done - loaded, "save": time.perf_counter() - done}
    if as_json:
        print(json.dumps(report(name, shop, card, reader, seconds), ensure_ascii=False))
    else:
        print(f"pot '{name}' is kept in {shop.where} ({card.bytes / 1e6:,.1f} MB)")
        note(summary(reader, chosen))


def _card(
    engine: Engine,
    recipe: Recipe,
    reader: Reader,
    text: Source,
    called: str,
    kept: Kept | None,
    int8: bool,
) -> Card:
    """The card of what was read; a pot that was read on stays as it was kept: exact, or not."""
    from infinipot.store.match import card_of

    before = kept.card if kept else None
    packed = int8 or (before is not None and before.encoding == "int8")
    encoding: Encoding = "int8" if packed else "exact"
    return card_of(engine, recipe, reader, called, text.sha256, text.bytes, before, encoding)


def target(save: str | None, append: str | None, replace: bool) -> str:
    """Return the name of the pot that is to be written."""
    if save is None and append is None:
        raise InputError("where to? give --save NAME, or --append NAME for a pot that is there")
    if save is not None and append is not None:
        raise InputError("--save makes a pot and --append reads on in one: give one of them")
    if append is not None and replace:
        raise InputError("--append replaces nothing: leave out --replace")
    return save if save is not None else append or ""


class Source:
    """Passes text through, and knows its digest and size at its end."""

    def __init__(self, pieces: Iterable[str]) -> None:
        self._pieces, self._digest, self.bytes = pieces, hashlib.sha256(), 0

    def __iter__(self) -> Iterator[str]:
        for piece in self._pieces:
            data = piece.encode()
            self._digest.update(data)
            self.bytes += len(data)
            yield piece

    @property
    def sha256(self) -> str:
        """Of all that has passed, as UTF-8."""
        return self._digest.hexdigest()


def _title(name: str) -> str:
    return "standard input" if name == "-" else named(name)


def report(
    name: str, shop: PotStore, card: Card, reader: Reader, seconds: dict[str, float]
) -> dict[str, Any]:
    """Return the document of `--json`."""
    return {
        "pot": name,
        "store": shop.where,
        **card.to_json(),
        "engine": f"plain: {reader.capture_obstacle}" if reader.capture_obstacle else "captured",
        "peak_memory_bytes": peak_memory_bytes(str(reader.model.device)),
        "seconds": {phase: round(value, 3) for phase, value in seconds.items()},
    }
