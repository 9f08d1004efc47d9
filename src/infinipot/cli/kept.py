"""A kept pot in a command: the pot brings its recipe and its model, and nothing of its text is read again."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from infinipot.cli import given as g
from infinipot.cli.expand import Given
from infinipot.errors import ConfigError, InputError
from infinipot.models import catalog
from infinipot.recipes.options import FORMAT, METHOD
from infinipot.store import Card, PotStore

if TYPE_CHECKING:
    from infinipot.engine import Engine
    from infinipot.reading.reader import Reader
    from infinipot.recipes.recipe import Recipe


@dataclass(frozen=True)
class Kept:
    """A pot in a store, and what was typed beside its name."""

    store: PotStore
    name: str
    card: Card
    given: Given

    def recipe(self) -> Recipe:
        """Return the pot's recipe; only its catalyst may be another."""
        from infinipot.store.match import recipe_of

        found, catalyst = recipe_of(self.card), self.given["catalyst"]
        if catalyst is not None and not found.uses_catalyst:
            raise found.no_catalyst()
        return replace(found, catalyst=catalyst) if catalyst else found

    def engine(self) -> Engine:
        """Load the model the pot was read by, in the dtype of its keys."""
        if "model" in self.given.typed:
            return g.open_engine(self.given, self._dtype())
        # A file from a stranger must not choose what is downloaded and run.
        if catalog.get(self.card.model) is None:
            raise InputError(
                f"pot '{self.name}' was read by '{self.card.model}', which is not in `infinipot models list`",
                field="model",
                remedy="say where it is with `model`",
            )
        values = {**self.given.values, "model": self.card.model}
        return g.open_engine(Given(values), self._dtype())

    def _dtype(self) -> str:
        from infinipot.hf.loading import choose_device

        dtype: str = self.given["dtype"]
        on_cpu = self.card.dtype == "float32" and choose_device(self.given["device"]).type == "cpu"
        # On a CPU float32 keys may come with faster products.
        return dtype if dtype != "auto" or on_cpu else self.card.dtype

    def into(self, reader: Reader, engine: Engine, recipe: Recipe) -> None:
        """Put the pot into a reader, if they belong together."""
        from infinipot.store.match import require

        require(self.card, engine, recipe, self.name)
        state, card = self.store.load(self.name)
        if card != self.card:  # replaced since it was looked at
            require(card, engine, recipe, self.name)
        reader.restore(state)


def find(given: Given, store: PotStore, name: str) -> Kept:
    """Return a kept pot after refusing options that were decided when its text was read."""
    for option in (*METHOD, FORMAT):
        if option.name in given.typed and option.name != "catalyst":
            raise ConfigError(
                f"pot '{name}' has a recipe of its own",
                field=option.name,
                remedy=f"leave out `{option.name}`",
            )
    return Kept(store, name, store.card(name), given)


def opened(given: Given, kept: Kept | None, recipe: Recipe) -> tuple[Engine, Recipe]:
    """Load the model of a kept pot, or the one asked for; return the recipe in the layout of its prompts."""
    if kept:
        return kept.engine(), recipe
    engine = g.open_engine(given)
    return engine, g.laid_out(recipe, given, engine)
