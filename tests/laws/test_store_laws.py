"""A pot that was kept is the pot: same logits, same words, same way on, for every recipe and family."""

from __future__ import annotations

import copy
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import toy_pots as toy
from families import FAMILIES, build
from infinipot.core.state import State
from infinipot.hf.model import HFModel
from infinipot.reading.reader import Reader
from infinipot.reading.sampling import Generation
from infinipot.recipes.presets import presets
from infinipot.recipes.recipe import Recipe
from infinipot.store import file
from infinipot.testing.model import ToyModel
from infinipot.testing.tokenizer import ByteTokenizer

SMALL = {"snapkv": {"window": 8}, "self-extend": {"group": 2, "window": 24}, "h2o": {"step": 16}}
each = pytest.mark.parametrize("name", sorted(presets()))


def reader(name: str, engine, **options) -> Reader:
    recipe = Recipe.named(name, **{"capacity": 64, **SMALL.get(name, {}), **options})
    return replace(recipe, catalyst="a b").reader(engine, ByteTokenizer())


@cache
def model(family: str) -> HFModel:
    return HFModel(copy.deepcopy(build(family)))


def kept(one: Reader, other: Reader) -> Reader:
    """The other reader, with what became of the first one's state in a file."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "x.pot"
        file.write(path, one.state(), toy.card())
        other.restore(file.read(path, "it")[0])
    return other


def logits(one: Reader, question: str = "so?") -> torch.Tensor:
    """What the model expects after the question."""
    twin = one.fork()
    hidden, _ = twin.begin_answer(twin.turn(question), 4, True)
    return one.model.logits(hidden)


def timeless(state: State) -> State:
    """A state without the seconds that reading took, which no two readings share."""
    return State(state.tensors, {**state.numbers, "seconds": 0})


def alike(one: Reader, other: Reader) -> None:
    """Everything that can be seen of two readers is the same, bit by bit."""
    assert torch.equal(logits(one), logits(other))
    assert one.ask("so?", Generation(4)) == other.ask("so?", Generation(4))
    assert toy.same(one.state(), other.state())
    assert one.words() == other.words()
    assert replace(one.progress(), seconds=0) == replace(other.progress(), seconds=0)


@each
@settings(max_examples=4)
@given(length=st.integers(0, 200), more=st.integers(0, 120), talk=st.booleans())
def test_a_kept_pot_is_the_pot(name: str, length: int, more: int, talk: bool) -> None:
    engine = ToyModel()
    one = reader(name, engine)
    one.read("abcdefg " * (length // 8))
    if talk:
        list(one.chat("Why so?", Generation(3)))
    other = kept(one, reader(name, engine))
    alike(one, other)
    for reading in (one, other):  # and it goes on in the same way
        reading.read("xyz " * (more // 4))
    assert toy.same(timeless(one.state()), timeless(other.state()))
    assert torch.equal(logits(one), logits(other))


@pytest.mark.parametrize("family", sorted(FAMILIES))
@pytest.mark.parametrize("name", ["infinipot", "h2o"])
def test_a_kept_pot_of_every_family_is_the_pot(name: str, family: str) -> None:
    one = reader(name, model(family))
    one.read(toy.TEXT * 3)
    alike(one, kept(one, reader(name, model(family))))


@each
def test_a_kept_pot_replaces_whatever_was_there(name: str) -> None:
    engine = ToyModel()
    one, other = reader(name, engine), reader(name, engine)
    one.read(toy.TEXT * 3)
    other.read("something else entirely " * 20)
    alike(one, kept(one, other))
