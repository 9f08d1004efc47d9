"""A pot that was filled beside a short catalyst is read on, and asked, with a longer one."""

from __future__ import annotations

import pytest

from infinipot.errors import InputError
from infinipot.reading.reader import Reader
from infinipot.reading.sampling import Generation
from infinipot.recipes.recipe import Recipe
from infinipot.testing.model import ToyModel
from infinipot.testing.tokenizer import ByteTokenizer

LONGER = "Tell me everything that matters in the text above, please."


def reader(capacity: int = 128) -> Reader:
    return Recipe.named(capacity=capacity, catalyst="a b").reader(ToyModel(), ByteTokenizer())


@pytest.mark.parametrize("more", ["", "x" * 500])
@pytest.mark.parametrize("count", range(90, 126, 7))
def test_a_longer_catalyst_finds_room(count: int, more: str) -> None:
    one = reader()
    one.read("y" * count)
    state = one.state()
    other = reader()
    other.set_question(catalyst=LONGER)
    other.restore(state)
    if more:
        other.read(more)
    assert len(list(other.generate(other.turn("why?"), Generation(40)))) > 0
    assert other.pot.fill <= 128
    assert other.pot.cycles > 0 or count + 1 + len(other.session.catalyst) <= 128


def test_a_conversation_goes_on_with_a_longer_catalyst() -> None:
    one = reader()
    for tokens in range(90, 130, 5):
        one.clear()
        one.set_question(catalyst="a b")
        "".join(one.chat("hi", Generation(tokens)))
        one.set_question(catalyst=LONGER)
        assert "".join(one.chat("and?", Generation(8))) is not None


def test_what_its_answer_filled_to_the_brim_is_still_refused() -> None:
    one = reader()
    one.read("y" * 60)
    list(one.generate(one.turn("?"), Generation(one.pot.room - len(one.turn("?"))), final=True))
    with pytest.raises(InputError, match="filled by its answer"):
        one.read("more")
