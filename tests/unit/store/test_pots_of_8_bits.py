"""Pots of 8 bits through a reader: forked, answered together, kept as files, told apart from those of 16."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import toy_pots as toy
from infinipot.errors import ConfigError
from infinipot.reading.sampling import Generation
from infinipot.recipes.recipe import Recipe
from infinipot.store import file
from infinipot.store.card import EXACT, ROUNDED
from infinipot.store.match import card_of, mismatch, recipe_of

EIGHT = Recipe.named(capacity=64, pot_bits=8, catalyst="a b")
SIXTEEN = Recipe.named(capacity=64, catalyst="a b")


def answer(reader, count: int = 12) -> list[int]:
    return list(reader.generate([5, 6, 7], Generation(count)))


def test_a_pot_comes_back_from_its_file_and_goes_on_as_before(tmp_path: Path) -> None:
    reader = toy.read(recipe=EIGHT)
    assert reader.pot.bits == 8
    assert reader.pot.cycles > 1
    card = card_of(toy.engine(), EIGHT, reader, "A text", toy.DIGEST, 180)
    assert card.format == ROUNDED
    path = tmp_path / "x.pot"
    file.write(path, reader.state(), card)
    state, known = file.read(path, "pot 'x'")
    assert recipe_of(known).config.pot_bits == 8
    assert mismatch(known, toy.engine(), EIGHT) == ""
    loaded = toy.engine().reader(EIGHT)
    loaded.restore(state)
    fork = reader.fork()
    said = answer(reader)
    assert answer(loaded) == said
    assert answer(fork) == said


def test_pots_of_8_and_of_16_bits_are_told_apart() -> None:
    eight, sixteen = toy.read(recipe=EIGHT), toy.read(recipe=SIXTEEN)
    cards = [
        card_of(toy.engine(), recipe, reader, "A text", toy.DIGEST, 180)
        for recipe, reader in ((EIGHT, eight), (SIXTEEN, sixteen))
    ]
    assert "pot_bits 8, not 16" in mismatch(cards[0], toy.engine(), SIXTEEN)
    assert "pot_bits 16, not 8" in mismatch(cards[1], toy.engine(), EIGHT)
    assert cards[1].format == EXACT  # which older versions read
    assert "pot_bits" not in cards[1].recipe


def test_nearly_all_slots_are_those_of_an_exact_pot() -> None:
    kept = []
    for recipe in (SIXTEEN, EIGHT):
        layers = toy.read(recipe=recipe).pot.pot_layers
        sources = torch.stack([layer.source[0, :, : layer.fill] for layer in layers])
        kept.append([set(head.tolist()) for head in sources.flatten(0, 1)])
    shared = [len(a & b) / len(a) for a, b in zip(*kept, strict=True)]
    assert sum(shared) / len(shared) > 0.8


def test_a_method_that_cannot_be_rounded_says_so() -> None:
    for name in ("full", "snapkv"):
        with pytest.raises(ConfigError) as refused:
            Recipe.named(name, pot_bits=8)
        assert refused.value.field == "pot_bits"
    with pytest.raises(ConfigError, match="use 8 or 16"):
        Recipe.named(pot_bits=4)
