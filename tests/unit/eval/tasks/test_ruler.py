"""RULER's tasks: their wordings, their lengths, what is hidden and how answers are scored."""

import json
import re
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pytest

from infinipot.errors import ConfigError, InputError
from infinipot.eval.tasks.passkey import NOISE
from infinipot.eval.tasks.synthetic import fitted, pairs, words
from infinipot.eval.tasks.task import BadRow, Example, Task, make

NIAH = ("niah-single", "niah-multikey", "niah-multivalue", "niah-multiquery")
MADE = (*NIAH, "variable-tracking", "common-words", "frequent-words")
NEEDLE = re.compile(r"^One of the special magic numbers for ([a-z]+-[a-z]+) is: (\d{7})\.$", re.MULTILINE)
TITLES = ("Normans", "Rivers", "Steam", "Forces", "Chess")


def tokens(text: str) -> int:
    """About as tokenizers count: words in pieces, numbers and marks."""
    return len(re.findall(r"[A-Za-z]{1,5}|\d|[^\sA-Za-z\d]", text))


def made(task: Task) -> list[Example]:
    found = list(task.examples(tokens))
    assert all(isinstance(each, Example) for each in found)
    return [each for each in found if isinstance(each, Example)]


def task(name: str, **options: Any) -> Task:
    return make("ruler", {"tasks": name, "trials": 2, "lengths": "2k", **options})


@pytest.fixture
def data(tmp_path: Path) -> Path:
    rows = [
        {
            "title": title,
            "paragraph": f"{title} are the subject. " + f"Nothing about {title} is certain. " * 10,
            "questions": [{"question": f"What of {title}?", "answers": ["nothing", f"{title} alone"]}],
        }
        for title in TITLES
    ]
    (tmp_path / "squad.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tmp_path


def test_all_tasks_but_qa_without_data(data: Path) -> None:
    told = {"lengths": [4096, 8192, 16384], "trials": 5, "hay": "noise"}
    assert make("ruler", {}).describe() == {"tasks": list(MADE), **told}
    assert make("ruler", {"data": data}).describe() == {"tasks": [*MADE, "qa"], **told}


@pytest.mark.parametrize("length", [1000, 4096, 20_000])
def test_examples_have_their_length_and_are_always_the_same(length: int, data: Path) -> None:
    whole = make("ruler", {"data": data, "trials": 2, "lengths": (length,)})
    found = made(whole)
    assert [each.id for each in found] == [
        f"{name}/{length}-{trial}" for name in (*MADE, "qa") for trial in (0, 1)
    ]
    for example in found:
        assert 0.85 * length <= tokens(example.text + example.question) <= length, example.id
        assert example.query in example.question
        assert example.bare
        assert (example.facts["length"], example.id.split("/")[0]) == (length, example.facts["task"])
        assert example.answers[0].lower() in example.text.lower()
        assert whole.score(f"They are {', '.join(example.answers).upper()}.", example) == 1
        assert whole.score("I do not know.", example) == 0
    assert made(whole) == found
    assert len({example.text for example in found}) == len(found)


@pytest.mark.parametrize(
    ("name", "keys", "values", "asked"),
    [(NIAH[0], 1, 1, 1), (NIAH[1], 4, 1, 1), (NIAH[2], 1, 4, 1), (NIAH[3], 4, 1, 4)],
)
def test_needles(name: str, keys: int, values: int, asked: int) -> None:
    ruler = task(name)
    for example in made(ruler):
        hidden = NEEDLE.findall(example.text)
        assert len(hidden) == keys * values
        assert len({key for key, _ in hidden}) == keys
        assert set(NEEDLE.sub("", example.text).split("\n", 1)[1].split()) == set(NOISE.split())
        wanted = {value for key, value in hidden if key in example.question}
        assert wanted == set(example.answers)
        assert len(wanted) == asked * values
        assert ruler.score(example.answers[0], example) == pytest.approx(1 / len(wanted))
        assert example.new_tokens == 128


def test_the_wording_of_needles() -> None:
    (one, *_), (four, *_) = made(task("niah-single")), made(task("niah-multiquery"))
    assert one.text.startswith(
        "A special magic number is hidden within the following text. Make sure to memorize it. "
        "I will quiz you about the number afterwards.\nThe grass is green."
    )
    ((key, _),) = NEEDLE.findall(one.text)
    assert one.question == (
        f"\nWhat is the special magic number for {key} mentioned in the provided text? "
        f"The special magic number for {key} mentioned in the provided text is"
    )
    assert four.text.startswith("Some special magic numbers are hidden within the following text. ")
    pair = "[a-z]+-[a-z]+"
    assert re.fullmatch(
        rf"What are all the special magic numbers for {pair}, {pair}, {pair}, and {pair} mentioned in the "
        r"provided text\?",
        four.query,
    )


def test_needles_in_hay_of_one_s_own(tmp_path: Path) -> None:
    (tmp_path / "hay.txt").write_text("Dogs bark at night. Cats sleep by day. " * 50)
    ruler = task("niah-multikey", hay=str(tmp_path))
    assert "Cats sleep by day." in made(ruler)[0].text
    assert ruler.describe()["hay"] == tmp_path.name
    with pytest.raises(InputError, match="there is no folder /nowhere"):
        task("niah-single", hay="/nowhere")


@pytest.mark.parametrize(("length", "often", "rarely"), [(2000, 6, 1), (4096, 30, 3), (40_000, 30, 3)])
def test_common_words(length: int, often: int, rarely: int) -> None:
    for example in made(task("common-words", lengths=(length,))):
        opening, listed = example.text.split("\n")
        assert opening == (
            "Below is a numbered list of words. In these words, some appear more often than others. "
            "Memorize the ones that appear most often."
        )
        entries = listed.split()
        counted = Counter(entries[1::2])
        assert entries[::2] == [f"{number}." for number in range(1, counted.total() + 1)]
        assert {word for word, times in counted.items() if times == often} == set(example.answers)
        assert Counter(counted.values()) == {often: 10, rarely: len(counted) - 10}
        assert ("-" in example.answers[0]) == (length == 40_000)  # more words than there are
    assert example.question == (
        "\nQuestion: What are the 10 most common words in the above list? "
        "Answer: The top 10 words that appear most often in the list are:"
    )


@pytest.mark.parametrize("length", [300, 4096])
def test_frequent_words(length: int) -> None:
    for example in made(task("frequent-words", lengths=(length,))):
        coded = example.text.removeprefix(
            "Read the following coded text and track the frequency of each coded word. "
            "Find the three most frequently appeared coded words. "
        ).split()
        (dots, often), *top = Counter(coded).most_common(4)
        assert (dots, tuple(word for word, _ in top)) == ("...", example.answers)
        assert often // 4 == pytest.approx(top[0][1], abs=1)  # 1 / 2² of the first
        assert top[2][1] > Counter(coded).most_common(5)[4][1]
        assert all(re.fullmatch("[a-z]{6}", word) for word in {*coded} - {dots})
        assert "Please ignore the dots '....'. What are the three" in example.question


def test_questions_about_documents(data: Path) -> None:
    ruler = task("qa", data=data, trials=6, lengths="1k,2k")
    found = made(ruler)
    short, long = found[:6], found[6:]
    assert [example.query for example in short] == [example.query for example in long]
    assert len({example.query for example in short}) == 5  # the sixth is the first again
    for example in found:
        opening = (
            "Answer the question based on the given documents. Only give me the answer and do not output any "
            "other words.\n\nThe following are given documents.\n\nDocument 1:\n"
        )
        assert example.text.startswith(opening)
        title = example.query.removeprefix("What of ").removesuffix("?")
        documents = re.split(r"Document \d+:\n", example.text)[1:]
        assert sum(text.startswith(f"{title} are the subject.") for text in documents) == 1
        assert len(documents) > 5
        assert ruler.score("It is NOTHING at all", example) == 1
    assert found[0].question.endswith(f"other words.\n\nQuestion: {found[0].query} Answer:")
    assert found[0].new_tokens == 32


def test_rows_that_are_no_questions(data: Path) -> None:
    bad = ({"paragraph": "A"}, {"paragraph": "A", "questions": [{"question": "Q", "answers": []}]}, [1])
    with (data / "squad.jsonl").open("a") as file:
        file.writelines(json.dumps(row) + "\n" for row in bad)
    found = [row for row in task("qa", data=data).examples(tokens) if isinstance(row, BadRow)]
    reasons = ["'questions' is missing", "'answers' is empty", "should be a JSON object, not list"]
    assert [row.reason for row in found] == reasons
    assert [row.line for row in found] == [6, 7, 8]
    (data / "squad.jsonl").write_text("{}\n")
    (none,) = task("qa", data=data).examples(tokens)
    assert isinstance(none, BadRow)


def test_what_cannot_be(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="give `data` its folder"):
        task("qa")
    with pytest.raises(InputError, match=r"has no squad\*\.jsonl"):
        task("qa", data=tmp_path)
    with pytest.raises(ConfigError, match="unknown RULER task 'niah-singel': did you mean 'niah-single'"):
        task("niah-singel")


def test_words_are_not_parts_of_one_another() -> None:
    assert len(words()) > 1000
    assert not any(one != other and one in other for one in words() for other in words())
    assert len(set(pairs(Random(0), 5000))) == 5000


@pytest.mark.parametrize("wanted", [0, 3, 10, 50, 5000, 200_000])
def test_a_text_is_fitted_to_its_tokens(wanted: int) -> None:
    def build(size: int) -> str:
        return " ".join(str(number) for number in range(size))  # longer words as it goes on

    found = len(fitted(build, 3, len, wanted))
    assert found == len(build(3)) if wanted < 5 else 0.9 * wanted - 5 <= found <= wanted
