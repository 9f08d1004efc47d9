"""Whether a pot and a model belong together: cards made from readers, and compared with engines.

A pot's keys mean something only to the weights, tokenizer, RoPE and recipe that wrote them. The catalyst may
differ, not `units`, which follow from it: it chooses what stays from now on, and nothing kept depends on it.
"""

from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from infinipot import __version__
from infinipot.core.config import PotConfig
from infinipot.errors import ConfigError, StoreError
from infinipot.models import fingerprint
from infinipot.reading.reader import Reader
from infinipot.recipes.options import DECLARED, RECALLING
from infinipot.recipes.recipe import Recipe
from infinipot.store.base import PotStore
from infinipot.store.card import EXACT, FORMAT, ROUNDED, Card, Encoding, joined, now
from infinipot.text.files import label, title

if TYPE_CHECKING:
    from infinipot.engine import Engine

_USUAL = {"pot_bits": 16, "units": "slots"}  # what older pots have without saying it
# Free to change for a kept pot, or said elsewhere; the last two are former names of `tail`.
_ASIDE = ("catalyst", *RECALLING, "bounds", "note", "step", "tail", "settle", "fit")


def card_of(
    engine: "Engine",
    recipe: Recipe,
    reader: Reader,
    name: str,
    sha256: str,
    size: int,
    before: Card | None = None,
    encoding: Encoding | None = None,
) -> Card:
    """Return the card of what a reader has read: a text of that title, digest and number of bytes.

    `before` is the card of the pot that was read on, where one was: without a name it keeps its title, and
    without an encoding its own.
    """
    step, name = reader.progress(), label(name)
    if before is not None:
        name, size = name or before.title, before.source_bytes + size
        sha256 = joined(before.source_sha256, sha256)
    return Card(
        model=label(title(engine.name)),
        weights=fingerprint.weights(engine.model, engine.sample),
        tokenizer=fingerprint.tokenizer(engine.tokenizer),
        rope=fingerprint.rope(reader.pot, engine.model),
        dtype=fingerprint.dtype(engine.model),
        recipe=_described(recipe),
        tokens_read=step.tokens_read,
        cycles=step.cycles,
        fill=step.fill,
        capacity=recipe.config.capacity,
        title=name,
        source_sha256=sha256,
        source_bytes=size,
        created=before.created if before else now(),
        updated=now(),
        infinipot=__version__,
        encoding=encoding or (before.encoding if before else "exact"),
        archive=reader.archive.digest if reader.archive else "",
        format=ROUNDED if recipe.config.pot_bits == 8 else EXACT,
    )


def _described(recipe: Recipe) -> dict[str, Any]:
    """A recipe as a card holds it: older versions know no bits and no units, and need none for the usual."""
    return {name: value for name, value in recipe.describe().items() if (name, value) not in _USUAL.items()}


def recipe_of(card: Card) -> Recipe:
    """Return the recipe a pot was read with."""
    told = card.recipe
    try:
        if "tail" not in told:  # older pots say in two words what becomes of a text's end
            told = {**told, "tail": "fill" if told.get("fit") else "distil" if told["settle"] else "raw"}
        return Recipe.described(told)
    except ConfigError as error:
        raise StoreError(f"this pot's recipe cannot be used here: {error}") from error
    except (KeyError, TypeError, AttributeError) as error:  # a card may hold anything
        raise StoreError("this pot's recipe is not one of this version: make the pot again") from error


def mismatch(card: Card, engine: "Engine", recipe: Recipe) -> str:
    """Return in one line why a pot cannot be used with an engine and a recipe; empty where it can."""
    if card.format > FORMAT:
        return f"the pot has format {card.format}, newer than {FORMAT}: upgrade infinipot"
    model = label(title(engine.name))
    if card.weights != fingerprint.weights(engine.model, engine.sample):
        return f"the pot was read by another model ({card.model}, not {model}): load that one"
    ours, dtype = f"than {model} has: load the model's own", fingerprint.dtype(engine.model)
    if card.tokenizer != fingerprint.tokenizer(engine.tokenizer):
        return f"the pot was read with another tokenizer or chat template {ours}"
    if card.dtype != dtype:
        mixed = f"the pot holds {card.dtype} and the model works in {dtype}: keys of two kinds do not mix"
        return f"{mixed}, use `dtype` {card.dtype}"
    if reason := _other_recipe(card.recipe, recipe):
        return reason
    config = recipe.config
    pot = engine.model.new_pot(config.capacity, config.kept, recipe.mode(), config.pot_bits)
    if card.rope != fingerprint.rope(pot, engine.model):
        return f"the pot was read with other RoPE positions {ours} configuration"
    return ""


def _other_recipe(theirs: Mapping[str, Any], recipe: Recipe) -> str:
    theirs, ours = _sized(theirs), _sized(recipe.describe())
    for name in sorted({*theirs, *ours} - {*_ASIDE}, key=lambda name: (name != "name", name)):
        if theirs.get(name) != ours.get(name):
            what, value = "recipe" if name == "name" else name, label(str(theirs.get(name)))
            option = name in ("name", "format") or (name in DECLARED and recipe.preset.takes(name))
            own = f"`{what}` {value}" if option and theirs.get(name) is not None else "the pot's own"
            told = f"the pot was read with {what} {value}, not {ours.get(name)}"
            return f"{told}: use {own}, or read the text again"
    return ""


def _sized(told: Mapping[str, Any]) -> dict[str, Any]:
    """A recipe with `keep` said out loud, and with the defaults of sizes that are younger than the pot."""
    told = {**asdict(PotConfig()), **_USUAL, **told}
    half = told["capacity"] // 2 if isinstance(told["capacity"], int) else None
    return {**told, "keep": half if told["keep"] is None else told["keep"]}


def put_into(
    reader: Reader, store: PotStore, name: str, engine: "Engine", recipe: Recipe, known: Card | None = None
) -> tuple[Card, str]:
    """Put a kept pot and its archive into a reader, if they belong together; `known` is its card so far.

    Returns the pot's card, and why nothing can be recalled where its archive is not whole.
    """
    if known is not None:
        require(known, engine, recipe, name)  # before gigabytes are loaded
    state, card = store.load(name)
    if card != known:
        require(card, engine, recipe, name)
    reader.restore(state)
    try:
        reader.archive = store.archive(name, card)
    except StoreError as error:  # the pot itself is whole
        reader.archive = None
        return card, str(error)
    return card, ""


def require(card: Card, engine: "Engine", recipe: Recipe, name: str) -> None:
    """Refuse a pot that cannot be used with an engine and a recipe."""
    if reason := mismatch(card, engine, recipe):
        raise StoreError(f"cannot use pot '{name}': {reason}")
