"""Which words a pot still holds: told from positions and ids, checked against the whole text."""

from __future__ import annotations

import pytest

from infinipot.core.state import State
from infinipot.errors import InputError
from infinipot.reading import held_words as trace
from infinipot.reading.held_words import HeldWords, columns, words_of
from infinipot.reading.sampling import Generation
from infinipot.recipes.recipe import Recipe
from infinipot.testing.model import ToyModel
from infinipot.testing.tokenizer import ByteTokenizer

TEXT = "".join(f"word{n} " for n in range(120))


def reader(capacity: int = 256, format="chat"):
    return Recipe.named(capacity=capacity, format=format, catalyst="a b").reader(ToyModel(), ByteTokenizer())


def test_a_text_that_fits_is_held_word_by_word() -> None:
    one = reader(capacity=2048)
    one.read(TEXT[:200])
    list(one.answer("?", Generation(1)))
    words = one.words()
    text = "".join(word.text for word in words)
    assert text.startswith(TEXT[:200])
    assert [word.text.strip() for word in words[:3]] == ["word0", "word1", "word2"]
    assert all(word.share == 1 for word in words)


@pytest.mark.parametrize("limit", [trace.LEAST, 50])
def test_what_is_held_stands_where_it_stood(limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace, "LEAST", limit)
    one = reader()
    one.read(TEXT)
    opening = len(one.frame.opening)
    held = {place for source, _ in columns(one.pot) for place in source.flatten().tolist()}
    assert one.pot.cycles > 3
    shown = set()
    for word in one.words():
        assert TEXT[word.start : word.end] == word.text
        shown |= set(range(word.start, word.end))
    assert shown == {place - opening for place in held if place >= opening}
    if limit == 50:
        assert len(one.session.held_words.ids) < 2 * one.pot.slots
    assert words_of(one.state(), one.tokenizer, opening) == one.words()


def test_shares_count_heads_and_novelty_is_the_slot_s() -> None:
    one = reader()
    one.read(TEXT)
    rows = [source[0, head].tolist() for source, _ in columns(one.pot) for head in range(source.shape[1])]
    alone = {len(word.text): word for word in one.words() if len(word.text) == 1}
    for word in alone.values():
        place = word.start + len(one.frame.opening)
        assert word.share == pytest.approx(sum(place in row for row in rows) / len(rows), abs=1e-3)
    source, novelty = columns(one.pot)[0]
    seen = dict(zip(source[0, 0].tolist(), novelty[0, 0].tolist(), strict=True))
    for word in one.words():
        place = word.start + len(one.frame.opening)
        if len(word.text) == 1 and place in seen:
            assert word.novelty == pytest.approx(seen[place], abs=0.01)


def test_answers_are_traced_too_and_a_fork_is_its_own() -> None:
    one = reader(capacity=1024)
    one.read("abc")
    twin = one.fork()
    said = list(one.generate(list(b"def"), Generation(6)))
    one.read("ghi")
    list(one.answer("?", Generation(1)))
    ids = one.session.held_words.ids.tolist()
    assert ids[len(one.frame.opening) :][: 6 + len(said)] == [*b"abcdef", *said]
    assert len(twin.session.held_words.ids) == len(one.frame.opening) + 3
    assert one.session.held_words.total == one.pot.tokens


def test_a_damaged_trace_is_refused() -> None:
    one = reader()
    one.read(TEXT)
    state = one.state()
    with pytest.raises(InputError, match="trace is damaged"):
        HeldWords().restore(State({}, {"total": 3}))
    tensors = {**state.tensors, "pot.000.source": state.tensors["pot.000.source"] + 10**6}
    with pytest.raises(InputError, match="another text"):
        words_of(State(tensors, state.numbers), one.tokenizer)


def test_words_of_an_endless_text_take_no_more_memory() -> None:
    one = reader()
    one.read(TEXT)
    state = one.state()
    long = State(state.tensors, {**state.numbers, "trace": {"total": 10**15}})
    assert words_of(long, one.tokenizer) == words_of(state, one.tokenizer)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("trace.places", lambda t: t - 10),
        ("trace.places", lambda t: t + 10**6),
        ("trace.places", lambda t: t.float()),
        ("trace.places", lambda t: t.flip(0)),
        ("trace.ids", lambda t: -t - 1),
        ("trace.ids", lambda t: t + 2**40),
        ("trace.ids", lambda t: t.float()),
        ("pot.000.source", lambda t: t.flatten()),
        ("pot.000.source", lambda t: t.float()),
        ("pot.000.novelty", lambda t: t[..., :3]),
    ],
)
def test_a_stranger_s_trace_is_refused(name: str, change) -> None:
    one = reader()
    one.read(TEXT)
    state = one.state()
    with pytest.raises(InputError, match="damaged"):
        words_of(State({**state.tensors, name: change(state.tensors[name])}, state.numbers), one.tokenizer)
