"""Whether a pot and a model belong together: cards made from readers, and compared with engines.

A pot's keys mean something only to the weights, tokenizer, RoPE and recipe that wrote them. The
catalyst may differ: it chooses what is kept from now on, and nothing kept depends on it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from infinipot import __version__
from infinipot.core.config import PotConfig
from infinipot.errors import ConfigError, StoreError
from infinipot.models import fingerprint
from infinipot.recipes.recipe import Recipe
from infinipot.store.card import FORMAT, Card, Encoding, joined, now, plain
from infinipot.text.files import title

if TYPE_CHECKING:
    from infinipot.engine import Engine
    from infinipot.reading.reader import Reader

# Not compared: free to change, or said elsewhere.
_ASIDE = ("catalyst", "bounds", "note", "tail", "settle", "fit", "step")


def card_of(
    engine: Engine,
    recipe: Recipe,
    reader: Reader,
    name: str,
    sha256: str,
    size: int,
    before: Card | None = None,
    encoding: Encoding = "exact",
) -> Card:
    """Return the card of what a reader has read: a text of that title, digest and number of bytes.

    `before` is the card of the pot that was read on, where one was; without a name it keeps its title.
    """
    step = reader.progress()
    made = Card(
        model=plain(title(engine.name)),
        weights=fingerprint.weights(engine.model, engine.sample),
        tokenizer=fingerprint.tokenizer(engine.tokenizer),
        rope=fingerprint.rope(reader.pot, engine.model),
        dtype=fingerprint.dtype(engine.model),
        recipe=recipe.describe(),
        tokens_read=step.tokens_read,
        cycles=step.cycles,
        fill=step.fill,
        capacity=recipe.config.capacity,
        title=plain(name),
        source_sha256=sha256,
        source_bytes=size,
        created=now(),
        updated=now(),
        infinipot=__version__,
        encoding=encoding,
    )
    if before is None:
        return made
    return replace(
        made,
        title=made.title or before.title,
        source_sha256=joined(before.source_sha256, sha256),
        source_bytes=before.source_bytes + size,
        created=before.created,
    )


def recipe_of(card: Card) -> Recipe:
    """Return the recipe a pot was read with."""
    try:
        return Recipe.described({**card.recipe, "tail": _tail(card.recipe)})
    except ConfigError as error:
        raise StoreError(f"this pot's recipe cannot be used here: {error}") from error
    except (KeyError, TypeError, AttributeError) as error:  # a card may hold anything
        raise StoreError("this pot's recipe is not one of this version: make the pot again") from error


def _tail(told: Mapping[str, Any]) -> Any:
    """What becomes of a text's end; older pots say so in two words."""
    if "tail" in told:
        return told["tail"]
    return "fill" if told.get("fit") else "distil" if told["settle"] else "raw"


def mismatch(card: Card, engine: Engine, recipe: Recipe) -> str:
    """Return in one line why a pot cannot be used with an engine and a recipe; empty where it can."""
    if card.format > FORMAT:
        return f"the pot has format {card.format}, newer than {FORMAT}: upgrade infinipot"
    model = plain(title(engine.name))
    if card.weights != fingerprint.weights(engine.model, engine.sample):
        return f"the pot was read by another model ({card.model}, not {model}): load that one"
    if card.tokenizer != fingerprint.tokenizer(engine.tokenizer):
        return (
            f"the pot was read with another tokenizer or chat template than {model} has: load the model's own"
        )
    if card.dtype != fingerprint.dtype(engine.model):
        return (
            f"the pot holds {card.dtype} and the model works in {fingerprint.dtype(engine.model)}: "
            f"keys of two kinds do not mix, use `dtype` {card.dtype}"
        )
    if reason := _other_recipe(card.recipe, recipe.describe()):
        return reason
    pot = engine.model.new_pot(recipe.config.capacity, recipe.config.kept, recipe.mode())
    if card.rope != fingerprint.rope(pot, engine.model):
        return (
            f"the pot was read with other RoPE positions than {model} has: load the model's own configuration"
        )
    return ""


def _other_recipe(theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> str:
    theirs, ours = _sized(theirs), _sized(ours)
    for name in sorted({*theirs, *ours} - {*_ASIDE}, key=lambda name: (name != "name", name)):
        if theirs.get(name) != ours.get(name):
            what = "recipe" if name == "name" else name
            return (
                f"the pot was read with {what} {plain(str(theirs.get(name)))}, not {ours.get(name)}: "
                "use the pot's own, or read the text again"
            )
    return ""


def _sized(told: Mapping[str, Any]) -> dict[str, Any]:
    """A recipe with `keep` said out loud, and with the defaults of sizes that are younger than the pot."""
    told = {**asdict(PotConfig()), **told}
    half = told["capacity"] // 2 if isinstance(told["capacity"], int) else None
    return {**told, "keep": half if told["keep"] is None else told["keep"]}


def require(card: Card, engine: Engine, recipe: Recipe, name: str) -> None:
    """Refuse a pot that cannot be used with an engine and a recipe."""
    if reason := mismatch(card, engine, recipe):
        raise StoreError(f"cannot use pot '{name}': {reason}")
