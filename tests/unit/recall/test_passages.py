"""Passages: nothing of a text is lost between them, and they end where people pause."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infinipot.recall.passages import MOST, Cutter, Passage


def cut(pieces: list[str]) -> list[str]:
    cutter = Cutter()
    return [text for piece in pieces for text in cutter.push(piece)] + list(cutter.flush())


words = st.sampled_from(["word ", "A sentence. ", "\n\n", "語。", "x" * 300, "Is it? ", "\n", ""])


@given(st.lists(st.lists(words, max_size=40).map("".join), max_size=12))
def test_joined_they_are_the_text_however_it_came(pieces: list[str]) -> None:
    found = cut(pieces)
    assert "".join(found) == "".join(pieces)
    assert found == cut(["".join(pieces)])
    assert all(0 < len(text) <= MOST for text in found)


@pytest.mark.parametrize(
    ("unit", "end"),
    [
        ("A paragraph of some words without an end\n\n", "\n\n"),
        ("[8 May] Ann: Did you go? I did not. It rained.\n", ".\n"),
        ("[8 May] Ann: I did. Look! [photo: a boat]\n", "]\n"),
        ("[8 May] Ann: No. Did you go? I did not. It rained so.\r\n", ".\r\n"),
        ("A paragraph. It has some words\r\n\r\n", "\r\n\r\n"),
        ("One sentence is wrapped (as in an old book)\nand says 'so'\nand ends. ", ". "),
        ("One sentence follows another. ", ". "),
        ("One sentence is wrapped, as in an old\nbook, and ends. ", ". "),
        ("文は句点で終わる。", "。"),
        ("only words ", " "),
    ],
)
def test_they_end_where_people_pause(unit: str, end: str) -> None:
    found = cut([unit * 400])
    assert len(found) > 3
    assert all(text.endswith(end) for text in found[:-1])


def test_a_text_without_any_pause_is_cut_all_the_same() -> None:
    assert [len(text) for text in cut(["x" * (2 * MOST + 5)])] == [MOST, MOST, 5]


@pytest.mark.parametrize(
    ("passage", "place"),
    [
        (Passage(1, "a.txt", None, 1200, 2400, 300, ""), "a.txt, characters 1,200 to 2,400"),
        (Passage(1, "", None, 0, 5, 0, ""), "characters 0 to 5"),
        (Passage(1, "user", 7, 0, 5, 0, ""), "turn 7, user"),
    ],
)
def test_a_passage_says_where_it_stands(passage: Passage, place: str) -> None:
    assert passage.place == place
    assert passage.to_json()["place"] == place


def test_a_quote_is_the_sentence_that_the_question_is_about() -> None:
    text = "The harbour lay still. The zebra was called Zorro by all. " + "It rained. " * 30
    passage = Passage(1, "", None, 0, len(text), 0, text)
    assert passage.quote(["zebras", "called"]) == "The zebra was called Zorro by all"
    assert passage.quote([]) == "The harbour lay still"
    assert len(Passage(1, "", None, 0, 9, 0, "word " * 300).quote([])) <= 200
    assert Passage(1, "", None, 0, 2, 0, " \n").quote(["x"]) == ""
