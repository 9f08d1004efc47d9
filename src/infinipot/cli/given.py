"""From what was typed to a recipe, an engine and the way of answering; and the text, or kept pot, to ask."""

import json
import sys
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from infinipot.cli.expand import Given
from infinipot.cli.screen import note, sign_of_life
from infinipot.errors import ConfigError, InputError
from infinipot.hf.light import import_transformers
from infinipot.models import cache, catalog
from infinipot.models.cache import Pull
from infinipot.recipes.option import Option
from infinipot.recipes.options import ANSWER, COMPUTING, DECLARED, FORMAT, METHOD, RECALLING
from infinipot.store import Card, PotStore, open_store
from infinipot.text.documents import Finder
from infinipot.text.fetch import Bounds
from infinipot.text.files import title

if TYPE_CHECKING:
    from infinipot.engine import Engine
    from infinipot.reading.reader import Reader
    from infinipot.reading.sampling import Generation
    from infinipot.recipes.recipe import Recipe


POT = Option("pot", str, None, "Take a pot that `infinipot read` kept, in place of files.", metavar="NAME")


def open_engine(given: Given, dtype: str | None = None, fused: bool = False) -> "Engine":
    """Load the model, pulling it under a progress bar when it is not there yet."""
    from infinipot.cli.models import draw_pull

    with sign_of_life(f"loading {title(given['model'])}") as sign:
        import_transformers(given["device"])
        from infinipot.engine import open_engine

        def pull(progress: Pull) -> None:
            if sign:
                sign.stop()  # a pull draws a bar of its own
            draw_pull(progress)
            if sign:
                sign.start()

        computing = given.of(COMPUTING) | ({"dtype": dtype} if dtype else {})
        engine = open_engine(given["model"], **computing, on_pull=pull, fused=fused)
    if engine.note:
        note(engine.note)
    return engine


def recipe_of(given: Given, otherwise: str = "general") -> "Recipe":
    """Check method, sizes and settings before anything is loaded; `otherwise` is the catalyst by default."""
    from infinipot.recipes.presets import find, parse_knob
    from infinipot.recipes.recipe import Recipe

    _check_meaning(given)
    preset = find(given["recipe"])
    options = given.of(DECLARED.values()) | dict(parse_knob(text, preset) for text in given["set"] or [])
    found = Recipe.named(preset.name, **options)
    return found if given["catalyst"] else replace(found, catalyst=otherwise)


def _check_meaning(given: Given) -> None:
    """Refuse a wish for recall by meaning where its model is not there; unasked, words do."""
    alias = catalog.SENTENCES.alias
    if given.values.get("meaning") and cache.card(alias) is None:
        problem, remedy = "recall by meaning needs a model of sentences", f"infinipot models pull {alias}"
        raise ConfigError(problem, field="meaning", remedy=f"`{remedy}` brings it")


def generation_of(given: Given, schema: Path | None = None) -> "Generation":
    """Return how the answer is to be generated, by the JSON schema of a file if one is named."""
    from infinipot.reading.grammar import Grammar
    from infinipot.reading.sampling import Generation

    grammar = None if schema is None else Grammar.json(read_schema(schema))
    return Generation(**given.of(one for one in ANSWER if one.name in given.values), grammar=grammar)


def read_schema(path: Path) -> Any:
    """Return the JSON of a file, or say in one line why that cannot be."""
    try:
        return json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or f"it is not JSON: {error}"
        remedy = "give a file with a JSON schema"
        raise InputError(f"cannot read {path} ({why})", field="schema", remedy=remedy) from error


@dataclass(frozen=True)
class Text:
    """A text as a stream of pieces, and its number of characters where that is known."""

    pieces: Iterable[str]
    total: int | None = None

    @classmethod
    def of_files(cls, given: Given) -> "Text":
        """Look at every file before any long work starts; return their text as one stream."""
        names: list[str] = given["file"] or []
        if not names:
            remedy = "give `file` NAME, or `file` - for standard input"
            raise InputError("nothing to read", field="file", remedy=remedy)
        if names.count("-") > 1:
            raise InputError("standard input can be read only once", field="file", remedy="give - once")
        bounds = Bounds(private=given["allow_private"])
        found = Finder(sys.stdin.buffer if "-" in names else None, bounds, note).find(names)
        return cls(found.pieces(), found.characters)


@dataclass(frozen=True)
class Kept:
    """A pot in a store, which brings its recipe and its model, and what was typed beside its name."""

    store: PotStore
    name: str
    card: Card
    given: Given

    def recipe(self) -> "Recipe":
        """Return the pot's recipe; only its catalyst, and what is recalled, may be another."""
        from infinipot.store import match

        _check_meaning(self.given)
        found, catalyst = match.recipe_of(self.card), self.given["catalyst"]
        if catalyst is not None and not found.uses_catalyst:
            raise found.no_catalyst()
        asking = {name: self.given[name] for name in RECALLING if self.given[name] is not None}
        found = replace(found, config=replace(found.config, **asking))
        return replace(found, catalyst=catalyst) if catalyst else found

    def engine(self) -> "Engine":
        """Load the model the pot was read by, in the dtype of its keys."""
        from infinipot.hf.loading import choose_device

        on_cpu = self.card.dtype == "float32" and choose_device(self.given["device"]).type == "cpu"
        # On a CPU float32 keys may come with faster products.
        dtype = self.given["dtype"] if self.given["dtype"] != "auto" or on_cpu else self.card.dtype
        if "model" in self.given.typed:
            return open_engine(self.given, dtype)
        # A file from a stranger must not choose what is downloaded and run.
        model = self.card.model
        if catalog.get(model) is None and "model" in self.given.where:
            return open_engine(self.given, dtype)
        if catalog.get(model) is None:
            problem = f"pot '{self.name}' was read by '{model}', which is not in `infinipot models list`"
            raise InputError(problem, field="model", remedy="say where it is with `model`")
        return open_engine(Given({**self.given.values, "model": model}), dtype)

    def into(self, reader: "Reader", engine: "Engine", recipe: "Recipe") -> None:
        """Put the pot into a reader, if they belong together."""
        from infinipot.store.match import put_into

        _, problem = put_into(reader, self.store, self.name, engine, recipe, self.card)
        if problem:
            note(f"{problem}: nothing is recalled, the answer is from the pot alone")


def pot_of(given: Given) -> Kept | None:
    """Return the kept pot that was named in place of files, if one was."""
    if (name := given["pot"]) is None:
        return None
    if given["file"]:
        remedy = "leave out `file`, or `infinipot read --append` it first"
        raise InputError("`pot` is read already", field="file", remedy=remedy)
    return find(given, open_store(given["store"]), name)


def find(given: Given, store: PotStore, name: str) -> Kept:
    """Return a kept pot after refusing options that were decided when its text was read."""
    card = store.card(name)
    for option in (*METHOD, FORMAT):
        if option.name in given.typed and option.name not in ("catalyst", *RECALLING):
            problem, remedy = f"pot '{name}' has a recipe of its own", f"leave out `{option.name}`"
            raise ConfigError(problem, field=option.name, remedy=remedy)
    return Kept(store, name, card, given)


def reader_of(given: Given, engine: "Engine", recipe: "Recipe", question: str | None = None) -> "Reader":
    """Return an empty reader, with an archive unless the user wants none."""
    reader = engine.reader(recipe, question)
    if not given["archive"]:
        reader.archive = None
    return reader


def opened(given: Given, kept: Kept | None, recipe: "Recipe") -> "tuple[Engine, Recipe]":
    """Load the model of a kept pot, or the one asked for; return the recipe in the layout of its prompts."""
    if kept:
        return kept.engine(), recipe
    engine = open_engine(given)
    return engine, replace(recipe, format=given["format"] or engine.format)
