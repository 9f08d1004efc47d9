"""What every recipe must do, on every family: nothing lost, nothing above capacity, always the same."""

from __future__ import annotations

import copy
from dataclasses import replace
from functools import cache

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from families import FAMILIES, build
from infinipot.core.pot import Pot
from infinipot.hf.model import HFModel
from infinipot.reading.reader import Reader
from infinipot.reading.sampling import Generation
from infinipot.recipes.presets import PRESETS, presets
from infinipot.recipes.recipe import Recipe
from infinipot.testing.model import ToyModel
from infinipot.testing.tokenizer import ByteTokenizer

SMALL = {"snapkv": {"window": 8}, "self-extend": {"group": 2, "window": 24}}
TEXT = "The quick brown fox jumps over the lazy dog. "
# `passages` reads no text of its own: tests/unit/reading/test_recalled.py has its laws.
READ = sorted(preset.name for preset in presets().values() if preset.mode.prompt != "passages")
each = pytest.mark.parametrize("name", READ)
PAIRS = [  # every recipe and every family in `make test`; every recipe with every family in `make test-long`
    pytest.param(
        name, family, marks=() if (row + column) % 5 == 0 else pytest.mark.slow, id=f"{name}-{family}"
    )
    for row, name in enumerate(READ)
    for column, family in enumerate(sorted(FAMILIES))
]


class Endless(ByteTokenizer):
    """Knows no stop token."""

    stop_ids = frozenset()


class Watched:
    """A model that remembers the largest fill of any forward, layer by layer."""

    def __init__(self, model) -> None:
        self.model, self.most = model, 0
        self.device, self.vocabulary, self.obstacle = model.device, model.vocabulary, model.obstacle
        self.new_pot, self.logits = model.new_pot, model.logits

    def forward(self, tokens: torch.Tensor, pot: Pot) -> torch.Tensor:
        hidden = self.model.forward(tokens, pot)
        self.most = max(self.most, *(layer.entries for layer in pot.layers))
        return hidden


@cache
def model(family: str) -> HFModel:
    return HFModel(copy.deepcopy(build(family)))


def reader(name: str, engine, **options) -> Reader:
    options = {"capacity": 64, **SMALL.get(name, {}), **options}
    return replace(Recipe.named(name, **options), catalyst="a b").reader(engine, Endless())


@pytest.mark.parametrize(("name", "family"), PAIRS)
def test_reads_answers_and_goes_on_with_every_family(name: str, family: str) -> None:
    engine = Watched(model(family))
    first, second = reader(name, engine), reader(name, engine)
    for one in (first, second):
        one.read(TEXT * 3)
        assert one.tokens_read == len(TEXT) * 3
    wanted = Generation(6)
    answer = first.ask("What?", wanted)
    assert answer == second.ask("What?", wanted) == first.ask("What?", wanted)  # repeatable, no trace left
    turns = ["".join(first.chat("Why so?", wanted)) for _ in range(2)]
    assert all(isinstance(turn, str) for turn in turns)
    if presets()[name].bounded:
        assert engine.most <= 64
    assert not any(torch.isnan(layer.keys[..., : layer.fill, :]).any() for layer in first.pot.pot_layers)


@each
@settings(max_examples=12)
@given(
    length=st.integers(0, 300),
    capacity=st.integers(49, 96),
    turns=st.lists(st.integers(1, 30), max_size=3),
    data=st.data(),
)
def test_capacity_is_never_exceeded(name: str, length: int, capacity: int, turns: list[int], data) -> None:
    engine = Watched(ToyModel())
    if name == "truncate":  # it refuses a turn of 15 tokens, 3 of them the last one's, and 23 new ones in 52
        capacity = max(capacity, 53)
    step = data.draw(st.integers(1, 8)) if presets()[name].step else None
    one = reader(name, engine, capacity=capacity, step=step)
    one.read("x" * length)
    for size in turns:
        list(one.chat("y" * (size % 12 + 1), Generation(size)))
    assert one.tokens_read == length
    if presets()[name].bounded:
        assert engine.most <= capacity
        assert one.pot.fill <= capacity


@each
def test_reading_in_pieces_is_reading_at_once(name: str) -> None:
    whole, parts = reader(name, ToyModel()), reader(name, ToyModel())
    text = TEXT * 8
    whole.read(text)
    parts.read(text[i : i + 7] for i in range(0, len(text), 7))
    assert whole.ask("so?", Generation(8)) == parts.ask("so?", Generation(8))
    for a, b in zip(whole.pot.pot_layers, parts.pot.pot_layers, strict=True):
        assert torch.equal(a.source[..., : a.fill], b.source[..., : b.fill])


@each
def test_a_text_that_fits_is_read_as_by_plain_attention(name: str) -> None:
    options = {"window": 10**6} if name == "self-extend" else {}  # within its window it is plain attention
    one, plain = reader(name, ToyModel(), capacity=256, **options), reader("full", ToyModel())
    one.read(TEXT)
    plain.read(TEXT)
    assert one.ask("so?", Generation(12)) == plain.ask("so?", Generation(12))


@each
def test_sampling_is_repeatable_under_a_seed(name: str) -> None:
    one = reader(name, ToyModel())
    one.read(TEXT * 4)
    warm = Generation(max_new_tokens=10, temperature=1.5, seed=5)
    assert one.ask("go", warm) == one.ask("go", warm)


@each
def test_opening_slots_are_never_dropped(name: str) -> None:
    if not presets()[name].policy or not presets()[name].bounded:
        return
    one = reader(name, ToyModel(), opening=5)
    one.read(TEXT * 8)
    list(one.generate(one.closing("so"), Generation(40)))
    for layer in one.pot.pot_layers:
        assert (layer.source[:, :, :5] == torch.arange(5)).all()


def test_the_recipes_of_the_paper_are_all_there() -> None:
    tables = "infinipot ccd cap-only nuc-only no-cr-rope truncate swa streaming-llm h2o tova sirllm"
    others = {"full", "snapkv", "self-extend", "passages", "infinipot-paper", "h2o-half", "tova-tokenwise"}
    assert {method.name for method in PRESETS} == {*tables.split(), *others}
