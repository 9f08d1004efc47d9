"""A pot of another model, tokenizer, RoPE, dtype, recipe or version is refused, with the reason."""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest
import torch

import small_tokenizers
import toy_pots as toy
from families import build
from infinipot.errors import StoreError
from infinipot.hf.model import HFModel
from infinipot.hf.tokenizer import HFTokenizer
from infinipot.models import fingerprint
from infinipot.recipes.presets import presets
from infinipot.recipes.recipe import Recipe
from infinipot.store.card import FORMAT, joined
from infinipot.store.match import card_of, mismatch, recipe_of, require
from infinipot.testing.model import ToyModel
from infinipot.testing.tokenizer import ByteTokenizer


class Other(ByteTokenizer):
    """Not the one."""


def test_the_same_model_under_any_name_matches() -> None:
    assert mismatch(toy.card(), toy.engine(), toy.RECIPE) == ""
    renamed = replace(toy.engine(), name="/somewhere/else")
    assert mismatch(toy.card(), renamed, toy.RECIPE) == ""


def test_another_model_tokenizer_rope_dtype_version_or_recipe_does_not() -> None:
    slow = toy.engine()
    slow.model.frequencies = slow.model.frequencies / 2
    looser = replace(Recipe.named(capacity=64, keep=40), catalyst="a b")
    longer = replace(Recipe.named(capacity=128), catalyst="a b")
    other = Recipe.named("h2o", capacity=64, heavy=8)
    cases = {
        "another model": (toy.card(), toy.engine(seed=1), toy.RECIPE),
        "another tokenizer": (toy.card(), replace(toy.engine(), tokenizer=Other()), toy.RECIPE),
        "`dtype` bfloat16": (toy.card(dtype="bfloat16"), toy.engine(), toy.RECIPE),
        "upgrade": (toy.card(format=FORMAT + 1), toy.engine(), toy.RECIPE),
        "capacity 64, not 128: use `capacity` 64,": (toy.card(), toy.engine(), longer),
        "keep 32, not 40: use `keep` 32,": (toy.card(), toy.engine(), looser),
        "infinipot, not h2o: use `recipe` infinipot,": (toy.card(), toy.engine(), other),
        "heavy 4, not 8: use the pot's own,": (
            toy.card(recipe={**other.describe(), "heavy": 4}),
            toy.engine(),
            other,
        ),
        "novelty 0.5, not 0.25: use `novelty` 0.5,": (
            toy.card(),
            toy.engine(),
            Recipe.named(capacity=64, novelty=0.25),
        ),
        "format plain, not chat: use `format` plain,": (
            toy.card(),
            toy.engine(),
            replace(toy.RECIPE, format="chat"),
        ),
        "RoPE": (
            toy.card(weights=fingerprint.weights(slow.model)),
            slow,
            toy.RECIPE,
        ),
    }
    for says, (card, engine, recipe) in cases.items():
        reason = mismatch(card, engine, recipe)
        assert says in reason
        assert "\n" not in reason
        with pytest.raises(StoreError, match="cannot use pot 'x'"):
            require(card, engine, recipe, "x")


def test_an_option_that_a_recipe_fixes_or_that_a_pot_does_not_tell_is_no_remedy() -> None:
    fixed = Recipe.named("nuc-only", capacity=64)
    for recipe, changes in ((fixed, {"units": "sentences"}), (toy.RECIPE, {"novelty": None})):
        reason = mismatch(toy.card(recipe={**recipe.describe(), **changes}), toy.engine(), recipe)
        assert reason.endswith(": use the pot's own, or read the text again")


def test_catalyst_and_settle_may_differ() -> None:
    other = replace(toy.RECIPE, catalyst="general", config=replace(toy.RECIPE.config, tail="raw", keep=32))
    assert mismatch(toy.card(), toy.engine(), other) == ""
    blind = Recipe.named(capacity=256)  # keeps whole sentences, and goes on so when the question is known
    card = toy.card(recipe=blind.describe())
    assert mismatch(card, toy.engine(), replace(recipe_of(card), catalyst="question")) == ""
    known = mismatch(card, toy.engine(), Recipe.named(capacity=256, catalyst="question"))
    assert (
        known
        == "the pot was read with units sentences, not slots: use `units` sentences, or read the text again"
    )


@pytest.mark.parametrize("name", sorted(presets()))
def test_every_recipe_comes_back_from_its_card(name: str) -> None:
    recipe = Recipe.named(name, capacity=256, **({"window": 8} if name == "snapkv" else {}))
    found = recipe_of(toy.card(recipe=recipe.describe()))
    assert found.describe() == recipe.describe()
    assert found.policy() == recipe.policy()
    assert found.mode() == recipe.mode()
    assert found.config == recipe.config


@pytest.mark.parametrize(
    "changes",
    [
        {"name": "nosuch"},
        {"capacity": "many"},
        {"capacity": 1},
        {"format": "poem"},
        {"novelty": "very"},
        {"novelty": 7},
        {"opening": None},
        {"keep": []},
    ],
    ids=str,
)
def test_a_recipe_that_cannot_be_is_refused(changes: dict) -> None:
    with pytest.raises(StoreError, match="recipe"):
        recipe_of(toy.card(recipe={**toy.RECIPE.describe(), **changes}))
    with pytest.raises(StoreError, match="recipe"):
        recipe_of(toy.card(recipe={"name": "infinipot"}))


def test_a_card_tells_what_was_read_and_no_folder(tmp_path) -> None:
    (tmp_path / "mymodel").mkdir()
    engine = replace(toy.engine(), name=str(tmp_path / "mymodel"))
    reader = toy.read(on=engine)
    first = card_of(engine, toy.RECIPE, reader, "A\nbook", "a" * 64, 180)
    assert (first.model, first.title) == ("mymodel", "A book")
    assert (first.tokens_read, first.cycles, first.capacity) == (180, reader.pot.cycles, 64)
    assert first.fill == reader.pot.fill
    reader.read("more")
    second = card_of(
        engine, toy.RECIPE, reader, "", "b" * 64, 4, replace(first, created="2020-01-01T00:00:00Z")
    )
    assert (second.title, second.tokens_read, second.source_bytes) == ("A book", 184, 184)
    assert second.source_sha256 == joined("a" * 64, "b" * 64)
    assert second.created == "2020-01-01T00:00:00Z" < second.updated
    packed = card_of(engine, toy.RECIPE, reader, "", "b" * 64, 4, replace(first, encoding="int8"))
    assert (first.encoding, second.encoding, packed.encoding) == ("exact", "exact", "int8")


def test_fingerprints_of_a_real_architecture() -> None:
    one, other = (HFModel(copy.deepcopy(build("llama-3"))) for _ in range(2))
    assert fingerprint.weights(one) == fingerprint.weights(other)
    with torch.no_grad():
        next(other.model.parameters()).add_(1)
    assert fingerprint.weights(HFModel(other.model)) != fingerprint.weights(one)
    assert fingerprint.dtype(one) == "float32"
    pots = [one.new_pot(capacity, capacity // 2) for capacity in (64, 128)]
    assert fingerprint.rope(pots[0], one) == fingerprint.rope(pots[1], one)
    scaled = copy.deepcopy(one)
    scaled.decoder.rotary_emb.attention_scaling = 1.25
    assert fingerprint.rope(pots[0], scaled) != fingerprint.rope(pots[0], one)


def test_rounding_of_frequencies_is_no_other_rope() -> None:
    model = ToyModel()
    pot = model.new_pot(64, 32)
    before = fingerprint.rope(pot)
    for layer in pot.layers:
        layer.rotation.frequencies = layer.rotation.frequencies.float() * (1 + 1e-7)
    assert fingerprint.rope(pot) == before


def test_fingerprint_of_a_tokenizer_outlives_its_use() -> None:
    made = [HFTokenizer(copy.deepcopy(small_tokenizers.build("qwen"))) for _ in range(3)]
    made[1].encode("some words <|im_end|>")
    made[1]._hf("a b c", truncation=True, max_length=2)
    made[2]._hf.chat_template = (made[2]._hf.chat_template or "") + " "
    found = [fingerprint.tokenizer(one) for one in made]
    assert found[0] == found[1] != found[2]
    assert len({*found, fingerprint.tokenizer(HFTokenizer(small_tokenizers.build("llama3")))}) == 3
