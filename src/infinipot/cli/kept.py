"""A kept pot in a command: it brings its recipe and its model, and nothing of it is read again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated

import typer

from infinipot.cli import options as o
from infinipot.errors import ConfigError, InputError
from infinipot.models import catalog
from infinipot.store import Card, PotStore

if TYPE_CHECKING:
    from infinipot.engine import Engine
    from infinipot.reading.reader import Reader
    from infinipot.recipes.recipe import Recipe

Store = Annotated[
    str | None,
    typer.Option(
        envvar="INFINIPOT_STORE",
        help="Where pots are kept: a folder, or an address such as s3://bucket/pots.",
        show_default="your own",
    ),
]
# Options that say how a text is read; a pot was read already.
_RECIPE = (
    *("recipe", "capacity", "keep", "step", "settings", "novelty"),
    *("pool", "pooling", "opening", "tail", "format"),
)


@dataclass(frozen=True)
class Kept:
    """A pot in a store, before and after its model is loaded."""

    store: PotStore
    name: str
    card: Card
    model: str | None = None  # None where the user named none

    def recipe(self, catalyst: str | None = None) -> Recipe:
        """Return the pot's recipe; only its catalyst may be another."""
        from infinipot.store.match import recipe_of

        found = recipe_of(self.card)
        if catalyst is None:
            return found
        if not found.uses_catalyst:
            raise ConfigError(f"recipe '{found.preset.name}' asks no catalyst here: leave out --catalyst")
        return replace(found, catalyst=catalyst)

    def engine(self, device: str, dtype: str) -> Engine:
        """Load the model the pot was read by, in the dtype of its keys."""
        model = self.model
        if model is None:
            # A file from a stranger must not choose what is downloaded and run.
            if catalog.get(self.card.model) is None:
                raise InputError(
                    f"pot '{self.name}' was read by '{self.card.model}', which is not in `infinipot models "
                    "list`: say where it is with --model"
                )
            model = self.card.model
        return o.open_engine(model, device, self._dtype(device, dtype))

    def _dtype(self, device: str, dtype: str) -> str:
        from infinipot.hf.loading import choose_device

        if dtype != "auto" or (self.card.dtype == "float32" and choose_device(device).type == "cpu"):
            return dtype  # on a CPU float32 keys may come with faster products
        return self.card.dtype

    def into(self, reader: Reader, engine: Engine, recipe: Recipe) -> None:
        """Put the pot into a reader, if they belong together."""
        from infinipot.store.match import require

        require(self.card, engine, recipe, self.name)
        state, card = self.store.load(self.name)
        if card != self.card:  # replaced since it was looked at
            require(card, engine, recipe, self.name)
        reader.restore(state)


def find(ctx: typer.Context, store: PotStore, name: str) -> Kept:
    """Return a kept pot after refusing options that it has decided already."""
    given = [option for option in ctx.command.params if _given(ctx, option.name)]
    for option in given:
        if option.name in _RECIPE:
            raise ConfigError(f"pot '{name}' has a recipe of its own: leave out {option.opts[0]}")
    named = any(option.name == "model" for option in given)
    return Kept(store, name, store.card(name), ctx.params["model"] if named else None)


def _given(ctx: typer.Context, name: str | None) -> bool:
    source = ctx.get_parameter_source(name or "")
    return source is not None and source.name in ("COMMANDLINE", "ENVIRONMENT")


class Processed:
    """Counts the tokens that were written from now until an answer's first token."""

    def __init__(self, reader: Reader) -> None:
        self._pot, self._before, self.tokens = reader.pot, reader.pot.tokens, 0

    def passing(self, pieces: Iterable[str]) -> Iterator[str]:
        """Pass an answer through."""
        for index, piece in enumerate(pieces):
            if index == 0:
                self.tokens = self._pot.tokens - self._before
            yield piece
