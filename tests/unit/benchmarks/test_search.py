"""Table 8: where a text says the answer, who held it, and which row shows it best."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from infinipot.inspect.run import Run
from infinipot.reading.recording import Record
from paper import evidence, search
from paper.search import Searched, Side, counts, markdown, ranked

FAR = "so it goes . " * 20  # wider than what is shown of a place
TEXT = f"Paris is old . Xcel Energy sells gas . {FAR}The consultant chose Xcel energy there . Excel no more"
PIECES = tuple(f"{' ' if n else ''}{word}" for n, word in enumerate(TEXT.split()))


def run(name: str, answer: str, held: list[int]) -> Run:
    dropped = np.ones((2, 2, len(PIECES)), np.int32)
    dropped[..., held] = 0
    dropped[0, 0] = 1  # one head of four dropped everything
    tokens = np.array([len(PIECES)], np.int32)
    ids = np.arange(len(PIECES), dtype=np.int32)
    record = Record((0, 1), tokens, dropped, np.zeros(len(PIECES), np.float16), (None,), ids, PIECES, {})
    return Run(name, record, answer, 0.0, 0)


def side(score: float, share: float | None) -> Side:
    return Side("r", "said", score, share, share)


def row(id: str, ours: tuple[float, float | None], theirs: tuple[float, float | None]) -> Searched:
    places = 0 if ours[1] is None else 1
    return Searched("hotpotqa", id, 9, 1, "Who?", ("a",), side(*ours), side(*theirs), places, ())


def test_an_answer_is_found_in_whole_words_whatever_its_capitals() -> None:
    assert evidence.places(PIECES, ["xcel energy"]) == [(4, 6), (92, 94)]
    assert evidence.places(PIECES, ["Xcel", "excel"]) == [(4, 5), (92, 93), (96, 97)]
    assert evidence.places(PIECES, ["cel"]) == evidence.places(PIECES, ["no", "Yes"]) == []
    assert evidence.find(PIECES, "xcel energy") == [], "only where asked for"


def test_the_evidence_is_where_the_question_s_words_are() -> None:
    found = evidence.places(PIECES, ["Xcel Energy"])
    assert evidence.evidence(PIECES, [], "Which?") is None
    assert evidence.evidence(PIECES, found, "Nothing alike?") == found[0]
    assert evidence.evidence(PIECES, found, "Which company did the consultant choose?") == found[1]


def test_the_words_around_a_place_have_it_in_their_middle() -> None:
    assert evidence.around(PIECES, (92, 94), 6) == (90, 96)
    assert evidence.around(PIECES, (0, 1), 4) == (0, 4)
    assert evidence.around(PIECES, (92, 94), 1) == (92, 94), "never less than the place"
    assert evidence.around(PIECES, (96, 97), 200) == (0, len(PIECES))


def test_a_row_says_who_held_the_evidence() -> None:
    runs = [run("ours", "Xcel Energy", [92, 93]), run("theirs", "Paris", [0, 4])]
    found = search.searched(
        "hotpotqa", "1", "Whom did the consultant choose?", ["Xcel Energy"], runs, [1.0, 0.0]
    )
    assert (found.ours.share, found.theirs.share) == (0.75, 0.0)
    assert (found.ours.everywhere, found.theirs.everywhere) == (0.375, 0.1875)
    assert (found.places, found.verdict, found.gain) == (2, "ours only", 0.75)
    shown = [word for word in found.words if word.ours > 0]
    assert [word.text for word in shown] == [" Xcel", " energy"]
    assert [word.text for word in found.words if word.own] == [" Xcel", " energy"], "the evidence's own"
    assert search.read(json.loads(json.dumps(found.json()))) == found


def test_a_text_that_does_not_say_the_answer_has_no_evidence() -> None:
    runs = [run("ours", "yes", [1]), run("theirs", "no", [2])]
    found = search.searched("hotpotqa", "1", "Is it?", ["yes"], runs, [1.0, 0.0])
    assert (found.places, found.ours.share, found.words) == (0, None, ())
    assert found.verdict == "ours only"
    assert ranked([found]) == []
    assert search.read(json.loads(json.dumps(found.json()))) == found


def test_the_best_row_is_the_one_whose_evidence_only_we_held() -> None:
    rows = [
        row("little", (0.5, 0.4), (0.0, 0.3)),
        row("most", (1.0, 0.9), (0.0, 0.0)),
        row("less", (1.0, 0.9), (0.0, 0.5)),
        row("no evidence", (1.0, None), (0.0, None)),
        row("both", (1.0, 1.0), (0.2, 0.0)),
        row("theirs", (0.0, 1.0), (1.0, 0.0)),
    ]
    assert [one.id for one in ranked(rows)] == ["most", "less", "little"]
    assert [one.id for one in ranked(rows[::-1])] == ["most", "less", "little"]


@pytest.mark.parametrize(
    ("ours", "theirs", "verdict"),
    [
        (1.0, 0.0, "ours only"),
        (0.49, 0.0, "in between"),
        (0.0, 0.5, "theirs only"),
        (0.5, 1.0, "both right"),
        (0.0, 0.0, "both wrong"),
        (1.0, 0.1, "in between"),
    ],
)
def test_verdicts(ours: float, theirs: float, verdict: str) -> None:
    assert row("1", (ours, 0.0), (theirs, 0.0)).verdict == verdict


def test_every_row_is_counted() -> None:
    rows = [row(str(n), (n % 3 / 2, 0.1), (n % 2, None)) for n in range(12)]
    found = counts(rows)
    assert found["searched"] == 12
    assert sum(found[name] for name in ("ours higher", "theirs higher", "equal")) == 12
    verdicts = ("ours only", "theirs only", "both right", "both wrong", "in between")
    assert sum(found[name] for name in verdicts) == 12


def test_the_table_shows_the_best_row_of_each_task_and_all_counts() -> None:
    runs = [run("ours", "Xcel | Energy", [92, 93]), run("theirs", "*Paris*", [0, 4])]
    found = search.searched("hotpotqa", "1", "The consultant?", ["Xcel Energy"], runs, [1.0, 0.0])
    text = markdown([found], "Title")
    assert r"\[**Xcel**\] \[**energy**\]" in text
    assert "~~consultant~~ ~~chose~~" in text
    assert r"Xcel \| Energy" in text
    assert r"\*Paris\*" in text
    assert "| theirs only | 0 |" in text
    other = replace(found, task="musique", id="2")
    text = markdown([other, found, replace(other, id="3")], "Title")
    assert text.index("## musique") < text.index("## hotpotqa")
    assert "Row `2`" in text
    assert "Row `3`" not in text
    none = markdown([replace(found, places=0)], "Title")
    assert "No row of the 1" in none
    assert "| ours only | 1 |" in none


PARTS = ("The", " port", "er", " spoke", ".", "\n", "日", "本", " Then", "")


def test_a_phrase_is_found_where_the_text_says_it() -> None:
    assert evidence.find(PARTS, "porter spoke") == [(1, 4)]
    assert evidence.find(PARTS, "orte") == [(1, 3)]
    assert evidence.find(PARTS, "er") == [(2, 3)]
    assert evidence.find(("a", "b", "a", "b"), "ab") == [(0, 2), (2, 4)]
    assert evidence.find(PARTS, "nothing") == evidence.find(PARTS, "") == []


def kept(dropped: list[list[list[int]]], tokens: list[int], pieces: tuple[str, ...] = ()) -> Record:
    found = np.array(dropped, np.int32)
    count = found.shape[-1]
    return Record(
        tuple(range(len(found))),
        np.array(tokens, np.int32),
        found,
        np.arange(count).astype(np.float16),
        (None,) * len(tokens),
        np.arange(count, dtype=np.int32),
        pieces or ("x",) * count,
        {},
    )


def test_two_recipes_side_by_side() -> None:
    pieces = ("A", " b", "c", " d", " e", " f")
    one = kept([[[0, 0, 0, 1, 1, 1]]], [6], pieces)
    other = kept([[[1, 0, 1, 0, 0, 0]]], [6], pieces)
    rows = evidence.side_by_side([one, other], 1, 4)
    assert [(row.text, row.start, row.shares) for row in rows] == [
        (" bc", 1, (1.0, 0.5)),
        (" d", 3, (0.0, 1.0)),
    ]
