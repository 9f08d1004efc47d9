"""Facts in books: all are there, lengths are kept, halves are apart, and what counts as right."""

import json
import lzma
from pathlib import Path
from typing import Any

import pytest

from infinipot.errors import ConfigError, InputError
from infinipot.eval.tasks.facts import BRIEFLY, FactsTask
from infinipot.eval.tasks.task import BadRow, Example, make

KINGS = 24


def tokens(text: str) -> int:
    return len(text.split())


def rows() -> list[dict[str, Any]]:
    return [
        {
            "paragraph": f"King number{n} ruled from town{n}. His horse was called horse{n}.",
            "questions": [
                {"question": f"Where did king number{n} rule?", "answers": [f"town{n}", "his castle"]},
                {"question": f"What was the horse of king number{n} called?", "answers": [f"horse{n}"]},
                {"question": f"Who was king number{n}?", "answers": ["a king"]},
            ],
        }
        for n in range(KINGS)
    ]


def write(path: Path, found: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in found))


@pytest.fixture
def data(tmp_path: Path) -> Path:
    (folder := tmp_path / "data").mkdir()
    write(folder / "squad.jsonl", rows())
    statements = [
        {
            "statement": f"Friend{n} drinks drink{n}.",
            "question": f"What of friend{n}?",
            "answers": [f"drink{n}"],
        }
        for n in range(6)
    ]
    (folder / "said.jsonl.xz").write_bytes(lzma.compress("\n".join(map(json.dumps, statements)).encode()))
    return folder


@pytest.fixture
def books(tmp_path: Path) -> Path:
    (folder := tmp_path / "books").mkdir()
    for book in "abc":
        text = "\n\n".join(
            " ".join(f"Book {book} tells of thing {part} {place} at length." for place in range(12))
            for part in range(40)
        )
        (folder / f"{book}.txt").write_text(text)
    return folder


@pytest.fixture
def task(data: Path, books: Path) -> FactsTask:
    return FactsTask(data, books, lengths=(600, 2000))


def made(task: FactsTask) -> list[Example]:
    found = list(task.examples(tokens))
    assert all(isinstance(each, Example) for each in found)
    return [each for each in found if isinstance(each, Example)]


def test_every_fact_is_a_paragraph_of_its_own_and_asked_as_often_as_wished(task: FactsTask) -> None:
    found = made(task)
    assert len(found) == 2 * 10 * 2
    paragraphs = {row["paragraph"]: row["questions"] for row in rows()}
    for text in {example.text for example in found}:
        planted = [part for part in text.split("\n\n") if part in paragraphs]
        assert len(planted) == len(set(planted)) == 10
        assert text.count("King number") == 10
        asked = [example for example in found if example.text == text]
        # In the order of the text, the first questions of each.
        assert [example.query for example in asked] == [
            one["question"] for part in planted for one in paragraphs[part][:2]
        ]
        for example in asked:
            assert example.question == example.query + BRIEFLY
            assert any(answer in text for answer in example.answers)
            assert not example.bare


@pytest.mark.parametrize("length", [200, 600, 2000, 9000])
def test_lengths_are_kept_and_books_stay_as_they_are(data: Path, books: Path, length: int) -> None:
    text = made(FactsTask(data, books, lengths=(length,), planted=5))[0].text
    assert 0.98 * length - 20 <= tokens(text) <= length
    hay = " ".join(part for part in text.split("\n\n") if not part.startswith("King number"))
    whole = " ".join(" ".join((books / f"{book}.txt").read_text() for book in "abcabcabc").split())
    assert " ".join(hay.split())[:500] in whole


def test_facts_lie_all_over_the_text(task: FactsTask) -> None:
    text = made(task)[-1].text
    places = [text.index(part) / len(text) for part in text.split("\n\n") if part.startswith("King number")]
    assert min(places) < 0.35
    assert max(places) > 0.65


def test_questions_about_a_text_share_it_as_one_object(task: FactsTask) -> None:
    found = made(task)
    assert all(example.shared for example in found)
    assert len({id(example.text) for example in found}) == len({example.text for example in found}) == 2
    assert [example.facts["length"] for example in found] == [600] * 20 + [2000] * 20


def test_several_texts_of_a_length_have_other_facts_and_another_hay(data: Path, books: Path) -> None:
    found = made(FactsTask(data, books, lengths=(1000,), planted=8, texts=3))
    assert len({example.id for example in found}) == len(found) == 3 * 8 * 2
    asked = [{example.query for example in found if example.facts["text"] == text} for text in range(3)]
    assert len(set.union(*asked)) == sum(map(len, asked))
    assert len({example.text for example in found}) == 3


def test_length_0_is_the_right_fact_alone(data: Path, books: Path) -> None:
    found = made(FactsTask(data, lengths=(0,)))  # no hay is needed
    long = made(FactsTask(data, books, lengths=(600,)))
    assert sorted(example.query for example in found) == sorted(example.query for example in long)
    for example in found:
        assert not example.shared
        assert example.text in {row["paragraph"] for row in rows()}
        assert any(answer in example.text for answer in example.answers)


def test_a_user_may_ask_for_length_0(data: Path) -> None:
    assert make("facts", {"data": data, "lengths": "0"}).describe()["lengths"] == [0]
    with pytest.raises(ConfigError, match="at least 0"):
        make("facts", {"data": data, "lengths": "-1"})


def test_examples_are_always_the_same_and_a_seed_makes_others(data: Path, books: Path) -> None:
    given = {"data": data, "hay": books, "lengths": (600,)}
    assert made(FactsTask(**given)) == made(FactsTask(**given))
    assert made(FactsTask(**given))[0].text != made(FactsTask(**given, seed=1))[0].text


def test_halves_are_apart_and_together_all(data: Path) -> None:
    parts = {
        part: {example.text for example in made(FactsTask(data, lengths=(0,), planted=KINGS, part=part))}
        for part in ("all", "tune", "report")
    }
    assert not parts["tune"] & parts["report"]
    assert parts["tune"] | parts["report"] == parts["all"] == {row["paragraph"] for row in rows()}
    assert min(len(parts["tune"]), len(parts["report"])) >= KINGS // 4


def test_halves_do_not_change_with_the_rest_of_the_file(data: Path) -> None:
    before = {e.text for e in made(FactsTask(data, lengths=(0,), planted=KINGS, part="tune"))}
    write(data / "squad.jsonl", rows()[::-2])
    after = {e.text for e in made(FactsTask(data, lengths=(0,), planted=KINGS, part="tune"))}
    assert after == before & {row["paragraph"] for row in rows()[::-2]}


def test_statements_and_other_files_by_name(data: Path, books: Path) -> None:
    found = made(FactsTask(data, books, facts="said", lengths=(300,), planted=6))
    assert len(found) == 6
    assert all(example.answers[0] in example.text for example in found)
    told = make("facts", {"data": data, "hay": str(books), "facts": "said", "lengths": "300", "part": "tune"})
    assert told.describe() == {
        "facts": "said",
        "part": "tune",
        "hay": "books",
        "lengths": [300],
        "planted": 10,
        "each": 2,
        "texts": 1,
    }


@pytest.mark.parametrize(
    ("said", "answers", "right"),
    [
        ("It was the Old Town.", ["old town"], 1),
        ("OLD  TOWN!", ["The Old Town"], 1),
        ("an old-town street", ["Old Town"], 1),
        ("Oldtown", ["Old Town"], 0),
        ("the older town", ["old"], 0),
        ("It was either.", ["one", "either"], 1),
        ("1,066", ["1066"], 0),
        ("in 1066.", ["1066"], 1),
        ("", ["town"], 0),
        ("", ["A"], 0),
        ("...", ["the"], 0),
        ("A", ["A"], 1),
    ],
)
def test_case_articles_and_punctuation_do_not_count(
    task: FactsTask, said: str, answers: list[str], right: int
) -> None:
    assert task.score(said, Example("x", "text", "question", tuple(answers), 8)) == right


def test_bad_rows_are_told_and_the_others_used(data: Path) -> None:
    good = rows()[:2]
    lines = [
        json.dumps(good[0]),
        "not json",
        json.dumps({"paragraph": "No questions."}),
        json.dumps({"paragraph": "None.", "questions": []}),
        json.dumps({"paragraph": "Odd.", "questions": ["Why?"]}),
        json.dumps({"paragraph": " ", "questions": good[0]["questions"]}),
        json.dumps({"statement": "He sat.", "question": " ", "answers": ["x"]}),
        json.dumps({"statement": "He sat.", "question": "Who?", "answers": []}),
        json.dumps({"statement": "He sat.", "question": "Who?", "answers": [7]}),
        json.dumps(good[1]),
    ]
    (data / "squad.jsonl").write_text("\n".join(lines))
    found = list(FactsTask(data, lengths=(0,)).examples(tokens))
    bad = [row for row in found if isinstance(row, BadRow)]
    assert [row.line for row in bad] == list(range(2, 10))
    assert {example.text for example in found if isinstance(example, Example)} == {
        row["paragraph"] for row in good
    }


def test_fewer_facts_than_wanted_are_all_asked(data: Path, books: Path) -> None:
    write(data / "squad.jsonl", rows()[:3])
    assert len(made(FactsTask(data, books, lengths=(300,), texts=2))) == 6


def test_facts_that_do_not_fit_a_text_are_refused(data: Path, books: Path) -> None:
    with pytest.raises(ConfigError, match="10 facts have 120 tokens, more than a text of 90") as caught:
        list(FactsTask(data, books, lengths=(90,)).examples(tokens))
    assert caught.value.field == "lengths"


@pytest.mark.parametrize(
    ("options", "field", "said"),
    [
        ({}, "hay", "planted in texts"),
        ({"hay": "{books}"}, "data", "needs its data"),
        ({"hay": "{books}", "data": "nowhere"}, "data", "no folder nowhere"),
        ({"hay": "{books}", "data": "{data}", "facts": "none"}, "", "has no none.jsonl"),
        ({"hay": "nowhere", "data": "{data}"}, "hay", "no folder nowhere"),
        ({"hay": "{data}", "data": "{data}"}, "hay", "no .txt file"),
    ],
)
def test_what_is_missing_is_told_before_the_run(
    data: Path, books: Path, options: dict[str, str], field: str, said: str
) -> None:
    given = {name: value.format(data=data, books=books) for name, value in options.items()}
    with pytest.raises((ConfigError, InputError), match=said) as caught:
        make("facts", {name: Path(v) if name == "data" else v for name, v in given.items()})
    assert caught.value.field == field
    assert "\n" not in str(caught.value)
