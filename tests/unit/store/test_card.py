"""Cards: what is written is what is read, and a stranger's card is not trusted."""

from __future__ import annotations

import json

import pytest

import toy_pots as toy
from infinipot.errors import StoreError
from infinipot.store import Card
from infinipot.store.card import FORMAT, joined
from infinipot.text.files import label


def test_a_card_survives_json() -> None:
    card = toy.card(encoding="int8", bytes=77)
    assert Card.from_json(json.loads(json.dumps(card.to_json()))) == card


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("weights", "short"),
        ("weights", "Z" * 64),
        ("tokens_read", -1),
        ("tokens_read", True),
        ("tokens_read", 1.5),
        ("fill", "7"),
        ("bytes", 2**70),
        ("title", 7),
        ("title", "\x1b[31mred"),
        ("title", "two\nlines"),
        ("title", "x" * 10_000),
        ("model", "a\u202eb"),
        ("created", "yesterday"),
        ("encoding", "int4"),
        ("recipe", []),
        ("recipe", {}),
        ("recipe", {"name": 3}),
        ("recipe", {"name": "infinipot", "deep": [[]]}),
        ("recipe", {"name": "infinipot", "half": "\ud800"}),
        ("recipe", {"name": "infinipot", "long": "x" * 100_000}),
        ("recipe", {"name": "infinipot", "huge": 10**100}),
        ("recipe", {"name": "infinipot", "\x1b[31m": 1}),
        ("format", 0),
        ("format", "1"),
    ],
)
def test_a_field_that_cannot_be_is_refused(name: str, value: object) -> None:
    with pytest.raises(StoreError, match="pot 'x'"):
        Card.from_json({**toy.card().to_json(), name: value}, "pot 'x'")


def test_every_field_must_be_there_and_no_other() -> None:
    whole = toy.card().to_json()
    for data in (None, [], {}, {**whole, "more": 1}, {k: v for k, v in whole.items() if k != "rope"}):
        with pytest.raises(StoreError):
            Card.from_json(data)


def test_a_newer_format_says_upgrade_even_if_its_fields_are_unknown() -> None:
    with pytest.raises(StoreError, match="upgrade infinipot"):
        Card.from_json({"format": FORMAT + 1, "soul": "deep"})


def test_texts_for_a_card_are_one_printable_line() -> None:
    assert label("a\x1b[31m\nb\0  c\u202e ") == "a [31m b c"
    assert len(label("x" * 10_000)) == 256
    assert len(joined(toy.DIGEST, toy.DIGEST)) == 64
