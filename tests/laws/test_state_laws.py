"""Laws of a reader's state: whatever it is, fork, put-back, save and load carry the whole of it."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from infinipot import Generation, InfiniPotError, Recipe
from infinipot.core.columns import COLUMNS
from infinipot.core.state import State
from infinipot.reading.reader import Reader
from infinipot.reading.state import HeadAndTail, ReaderState
from infinipot.testing import ByteTokenizer, ToyModel

MODEL = ToyModel()
RECIPES = ("infinipot", "whole sentences", "h2o", "tova", "truncate", "full", "snapkv", "streaming-llm")
FLAGS = [one.name for one in fields(ReaderState) if one.type == "bool"]


def reader(name: str = "infinipot", **options: object) -> Reader:
    if name == "whole sentences":
        name, options = "infinipot", {"units": "sentences", **options}
    asks = {"catalyst": "a b"} if name == "infinipot" else {}
    return Recipe.named(name, capacity=48, **asks, **options).reader(MODEL, ByteTokenizer())


def same_state(a: ReaderState, b: ReaderState) -> None:
    """Compare field by field, so that a new field is compared too."""
    for one in fields(ReaderState):
        left, right = getattr(a, one.name), getattr(b, one.name)
        if isinstance(left, torch.Tensor):
            assert torch.equal(left, right), one.name
        elif isinstance(left, HeadAndTail):
            assert left.state() == right.state(), one.name
        else:
            assert left == right, one.name


def same_pot(a: Reader, b: Reader) -> None:
    assert a.pot.counters() == b.pot.counters()
    for left, right in zip(a.pot.pot_layers, b.pot.pot_layers, strict=True):
        for column in COLUMNS:
            end = getattr(left, column.length)
            ours, theirs = (getattr(layer, column.name)[:, :, :end] for layer in (left, right))
            assert torch.equal(ours, theirs), column.name
    assert a.words() == b.words()


def data_of(one: Reader) -> State:
    """A state that shares no memory with its reader, as a file would be."""
    found = one.state()
    return State({name: tensor.clone() for name, tensor in found.tensors.items()}, dict(found.numbers))


@given(
    st.tuples(*(st.booleans() for _ in FLAGS)),
    st.integers(0, 2**40),
    st.floats(0, 1e6),
    st.lists(st.integers(0, 259), max_size=5),
)
def test_every_field_is_carried(
    flags: tuple[bool, ...], tokens_read: int, seconds: float, pending: list[int]
) -> None:
    one = reader()
    one.read("some words that are read " * 4)
    one.session.state = replace(
        one.session.state,
        tokens_read=tokens_read,
        seconds=seconds,
        pending=pending,
        **dict(zip(FLAGS, flags, strict=True)),
    )
    loaded, before = reader(), one.session.fork()
    loaded.restore(data_of(one))
    same_state(loaded.session.state, one.session.state)
    same_state(one.fork().session.state, one.session.state)
    one.session.clear()
    one.session.put_back(before)
    same_state(one.session.state, before.state)
    same_pot(loaded, one)


@pytest.mark.parametrize("name", RECIPES)
def test_a_reader_goes_on_alike_after_fork_and_load(name: str) -> None:
    one = reader(name)
    one.read("the first part of a text, longer than the pot holds. " * 3)
    loaded, twin = reader(name), one.fork()
    loaded.restore(data_of(one))
    answers = []
    for each in (one, twin, loaded):
        each.read("and a second part of it. " * 3)
        answers.append("".join(each.chat("so?", Generation(6))))
    assert answers[0] == answers[1] == answers[2]
    for each in (twin, loaded):
        same_pot(each, one)
        same_state(replace(each.session.state, seconds=0.0), replace(one.session.state, seconds=0.0))


def test_a_used_up_pot_stays_used_up() -> None:
    one = reader()
    one.read("some words")
    room = one.pot.room - len(one.turn("go on"))
    "".join(one.answer("go on", Generation(room)))
    assert one.session.state.exhausts_pot
    loaded = reader()
    loaded.restore(data_of(one))
    for each in (one, one.fork(), loaded):
        with pytest.raises(InfiniPotError, match="filled by its answer"):
            each.read("more")


def test_states_kept_before_still_load() -> None:
    one = reader()
    one.read("some words that were kept long ago " * 3)
    "".join(one.chat("so?", Generation(3)))
    now, numbers = data_of(one), dict(one.state().numbers)
    former = {"in_dialogue": "talking", "has_undistilled": "fresh", "tail_was_filled": "fitted"}
    for new, old in former.items():
        numbers[old] = int(numbers.pop(new))
    numbers["ends"] = numbers.pop("head_tail")
    del numbers["exhausts_pot"], numbers["seconds"]  # were not kept
    loaded = reader()
    loaded.restore(State(now.tensors, numbers))
    same_state(replace(loaded.session.state, seconds=0.0), replace(one.session.state, seconds=0.0))
    same_pot(loaded, one)


@pytest.mark.parametrize("told", [[2**70, 0, 0, 0, 0], [-1, 0, 0, 0, 0], [0], "x", [0, 0.5, 0, 0, 0]])
def test_a_strangers_sentence_is_refused(told: object) -> None:
    one = reader("whole sentences")
    one.read("some words. And more.")
    now = data_of(one)
    with pytest.raises(InfiniPotError, match="sentence is damaged"):
        reader("whole sentences").restore(State(now.tensors, {**now.numbers, "sentence": told}))


def test_a_write_that_fails_leaves_the_sentence_where_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    one = reader("whole sentences")
    one.read("some words. And")
    before = one.session.state.sentence
    with monkeypatch.context() as broken:
        broken.setattr(MODEL, "forward", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            one.session.write(list(b" more. And more."))
    assert one.session.state.sentence == before


def test_text_without_sentences_does_not_freeze_the_pot() -> None:
    one = Recipe.named(capacity=1024, units="sentences", catalyst="a b").reader(MODEL, ByteTokenizer())
    one.read("".join(f"{n},{n * n},a table\n" for n in range(600)))
    assert int(one.pot.pot_layers[0].source.max()) > one.tokens_read - 1200
    kept = one.pot.pot_layers[0].source[0, 0, : one.config.kept]
    assert int(kept.max()) > one.tokens_read / 4  # not its beginning alone


def test_fields_are_listed_once() -> None:
    """A new field of the state needs no second list: its name is in no other module but where it is used."""
    source = Path(ReaderState.loaded.__code__.co_filename).read_text("utf-8")
    assert "__dict__" not in source
    saved = reader().session.state.saved()
    assert {*saved.numbers, "last_hidden"} == {one.name for one in fields(ReaderState)}
