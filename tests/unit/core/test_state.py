"""A reader's state is the whole truth: put into another reader, everything goes on as it would have."""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest
import torch

from families import build
from infinipot.core.state import State
from infinipot.errors import InputError
from infinipot.hf.model import HFModel
from infinipot.reading.reader import Reader
from infinipot.reading.sampling import Generation
from infinipot.recipes.presets import PRESETS
from infinipot.recipes.recipe import Recipe
from infinipot.testing.model import ToyModel
from infinipot.testing.tokenizer import ByteTokenizer

TEXT = "The quick brown fox jumps over the lazy dog. " * 6


def reader(name: str = "infinipot", model=None, capacity: int = 64) -> Reader:
    recipe = Recipe.named(name, capacity=capacity, format="chat")
    if recipe.uses_catalyst:
        recipe = replace(recipe, catalyst="a b")
    return recipe.reader(model or ToyModel(), ByteTokenizer())


def cloned(state: State) -> State:
    tensors = {name: tensor.clone() for name, tensor in state.tensors.items()}
    return State(tensors, copy.deepcopy(state.numbers))


@pytest.mark.parametrize("name", [method.name for method in PRESETS])
@pytest.mark.parametrize("length", [0, 20, len(TEXT)])
def test_a_restored_reader_goes_on_as_the_first_would_have(name: str, length: int) -> None:
    first, second = reader(name), reader(name)
    second.read("something else that must leave no trace " * 4)
    if length:
        first.read(TEXT[:length])
        list(first.chat("why?", Generation(5)))
    second.restore(cloned(first.state()))
    for one in (first, second):
        one.read(" And on it goes." * 5)
    said = [list(one.generate(list(b"so?"), Generation(12))) for one in (first, second)]
    assert said[0] == said[1]
    assert first.progress().__dict__ | {"seconds": 0} == second.progress().__dict__ | {"seconds": 0}
    assert first.words() == second.words()


@pytest.mark.parametrize("family", ["gemma-3", "llama-3.1"])
def test_local_layers_come_back_too(family: str) -> None:
    model = HFModel(copy.deepcopy(build(family)))
    first, second = reader(model=model), reader(model=model)
    first.read(TEXT)
    second.restore(cloned(first.state()))
    said = [list(one.generate([65, 66], Generation(12))) for one in (first, second)]
    assert said[0] == said[1]


def test_a_state_that_does_not_fit_leaves_an_empty_reader() -> None:
    first = reader()
    first.session.config = replace(first.config, tail="distil")  # so that there are anchors
    first.read(TEXT)
    good = cloned(first.state())
    wrong = {
        "pot of another size": (reader(capacity=32), good),
        "no layers": (reader(), State(good.tensors, {**good.numbers, "pot": {}})),
        "places beyond the text": (reader(), _with(good, "pot.000.source", lambda t: t + 10_000)),
        "places beyond the pot": (reader(), _with(good, "pot.001.written", lambda t: t - 99)),
        "other dtype": (reader(), _with(good, "pot.000.keys", lambda t: t.double())),
        "other shape": (reader(), _with(good, "pot.000.values", lambda t: t[:, :1])),
        "pending that is no token": (reader(), State(good.tensors, {**good.numbers, "pending": [10**6]})),
        "a trace of two lengths": (reader(), _with(good, "trace.ids", lambda t: t[1:])),
        "numbers that are not": (reader(), State(good.tensors, {**good.numbers, "tokens_read": "many"})),
    }
    for what, (into, state) in wrong.items():
        into.read("before")
        with pytest.raises(InputError, match=r"^this state's [^\n]*$"):
            into.restore(state)
        assert (into.pot.fill, into.tokens_read) == (0, 0), what
        into.read(TEXT)  # and it still works


def _with(state: State, name: str, change) -> State:
    assert name in state.tensors
    return State({**state.tensors, name: change(state.tensors[name])}, state.numbers)


def test_layers_of_different_lengths_are_refused() -> None:
    first = reader()
    first.read(TEXT[:20])
    state = cloned(first.state())
    layer = {k: t[:, :, :-1] for k, t in state.tensors.items() if k.startswith("pot.001.") and t.dim() >= 3}
    layer = {k: t for k, t in layer.items() if not k.endswith(("anchors", "written"))}
    numbers = copy.deepcopy(state.numbers)
    numbers["pot"]["001"]["fill"] -= 1
    with pytest.raises(InputError, match="differ in length"):
        reader().restore(State({**state.tensors, **layer}, numbers))


def test_aiming_takes_another_catalyst_and_frame() -> None:
    one = replace(Recipe.named(capacity=256, format="chat"), catalyst="question").reader(
        ToyModel(), ByteTokenizer(), "what?"
    )
    before = one.session.catalyst
    one.set_question("which?")
    assert one.session.catalyst != before
    one.set_question("what?")
    assert one.session.catalyst == before
    one.set_question("what?", framed=False)
    assert one.session.catalyst == before
    assert not one.frame.opening
    one.read("abc")
    assert one.pot.tokens + len(one.session.state.pending) == 3


def test_dtypes_survive() -> None:
    first = reader(model=ToyModel(dtype=torch.bfloat16))
    first.read(TEXT)
    second = reader(model=ToyModel(dtype=torch.bfloat16))
    second.restore(cloned(first.state()))
    assert list(first.generate([65], Generation(8))) == list(second.generate([65], Generation(8)))
