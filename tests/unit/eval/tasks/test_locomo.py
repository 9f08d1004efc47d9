"""LoCoMo: a conversation as an exported chat, its questions by category, the official scores."""

import gzip
import json
import lzma
from pathlib import Path
from typing import Any

import pytest

from infinipot.errors import ConfigError, InputError
from infinipot.eval.tasks.locomo import LoCoMo
from infinipot.eval.tasks.task import BadRow, Example, make

TALK: dict[str, Any] = {
    "speaker_a": "Ann",
    "speaker_b": "Bob",
    "session_1_date_time": "1:56 pm on 8 May, 2023",
    "session_1": [
        {"speaker": "Ann", "dia_id": "D1:1", "text": "Hey Bob!"},
        {"speaker": "Bob", "dia_id": "D1:2", "text": "Look \nat this.\n", "blip_caption": "a red kite"},
    ],
    "session_10_date_time": "9:00 am on 1 July, 2023",
    "session_10": [{"speaker": "Ann", "dia_id": "D10:1", "text": "Last one."}],
    "session_2_date_time": "4:04 pm on 20 May, 2023",
    "session_2": [{"speaker": "Bob", "dia_id": "D2:1", "text": "I moved to Rome."}],
    "session_3_date_time": "never",
    "session_4": [],
}
TEXT = """[1:56 pm on 8 May, 2023] Ann: Hey Bob!
[1:56 pm on 8 May, 2023] Bob: Look at this. [photo: a red kite]

[4:04 pm on 20 May, 2023] Bob: I moved to Rome.

[9:00 am on 1 July, 2023] Ann: Last one."""
QA: list[dict[str, Any]] = [
    {"question": "What does Bob fly? ", "answer": "kites, planes", "category": 1, "evidence": []},
    {"question": "When?", "answer": 2022, "category": 2, "evidence": []},
    {"question": "Would he?", "answer": "Likely no; he hates it", "category": 3, "evidence": []},
    {"question": "Where is Bob?", "answer": "in Rome", "category": 4, "evidence": []},
    {"question": "Where is Ann?", "adversarial_answer": "Rome", "category": 5, "evidence": []},
]


def folder(path: Path, *talks: object, name: str = "locomo10.json") -> Path:
    (path / name).write_text(json.dumps(talks))
    return path


def talk(name: str = "conv-1", **fields: object) -> dict[str, object]:
    return {"sample_id": name, "conversation": TALK, "qa": QA, **fields}


def examples(path: Path, **options: Any) -> list[Example | BadRow]:
    return list(make("locomo", {"data": path, **options}).examples(len))


def one(path: Path, category: int) -> tuple[LoCoMo, Example]:
    task = LoCoMo(folder(path, talk()), (category,))
    (found,) = task.examples(len)
    assert isinstance(found, Example)
    return task, found


def test_a_conversation_is_read_once_and_asked_about(tmp_path: Path) -> None:
    found = examples(folder(tmp_path, talk(), talk("conv-2")))
    assert [each.id for each in found if isinstance(each, Example)] == [
        f"conv-{talk}-{question}" for talk in (1, 2) for question in (1, 2, 3, 4)
    ]
    first, *others = (each for each in found[:4] if isinstance(each, Example))
    assert first.text == TEXT
    assert all(other.text is first.text and other.shared for other in others)
    assert (first.query, first.question) == (
        "What does Bob fly?",
        "What does Bob fly? Answer in a few words.",
    )
    assert (first.new_tokens, first.bare) == (32, False)
    assert first.facts == {"task": "multi-hop", "conversation": "conv-1"}
    assert [other.facts["task"] for other in others] == ["temporal", "open-domain", "single-hop"]
    assert [other.answers for other in others] == [("2022",), ("Likely no",), ("in Rome",)]


def test_categories_and_the_adversarial_one_alone(tmp_path: Path) -> None:
    folder(tmp_path, talk())
    assert [each.id for each in examples(tmp_path, categories="4,2") if isinstance(each, Example)] == [
        "conv-1-2",
        "conv-1-4",
    ]
    (asked,) = examples(tmp_path, categories="5")
    assert isinstance(asked, Example)
    assert (asked.facts["task"], asked.answers) == ("adversarial", ("not mentioned",))
    with pytest.raises(ConfigError, match=r"category 5 .*: ask for 5 alone"):
        make("locomo", {"data": tmp_path, "categories": "4,5"})
    with pytest.raises(ConfigError, match="`categories` is 6: use 1 to 5"):
        make("locomo", {"data": tmp_path, "categories": "6"})
    assert make("locomo", {"data": tmp_path}).describe() == {"categories": [1, 2, 3, 4]}


@pytest.mark.parametrize(
    ("category", "prediction", "wanted"),
    [
        (1, "The planes, a kites", 1),
        (1, "kites", 0.5),
        (1, "kites planes", 2 / 3),  # one part against each wanted
        (1, "", 0),
        (2, "2022.", 1),
        (2, "in 2022", 2 / 3),
        (3, "likely no", 1),
        (4, "Rome", 2 / 3),
        (4, "in Rome, Italy", 0.8),
        (5, "Not mentioned in the conversation", 1),
        (5, "No information available.", 1),
        (5, "The text doesn't explicitly mention where Ann is.", 1),
        (5, "There is no specific information about Ann.", 1),
        (5, "Rome", 0),
        (5, "She mentioned Rome, not Paris", 0),
    ],
)
def test_scores(category: int, prediction: str, wanted: float, tmp_path: Path) -> None:
    task, example = one(tmp_path, category)
    assert task.score(prediction, example) == pytest.approx(wanted)


def test_several_files_plain_or_packed(tmp_path: Path) -> None:
    folder(tmp_path, talk("b"), name="locomo_b.json")
    (tmp_path / "locomo_b.json.gz").write_bytes(gzip.compress(b"the plain file goes first"))
    (tmp_path / "locomo_a.json.xz").write_bytes(lzma.compress(json.dumps([talk("a")]).encode()))
    (tmp_path / "other.json").write_text("[]")
    found = examples(tmp_path, categories="4")
    assert [each.id for each in found if isinstance(each, Example)] == ["a-4", "b-4"]


def test_no_files(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"has no locomo\*\.json .*snap-research/locomo"):
        LoCoMo(tmp_path)
    with pytest.raises(InputError, match="give `data` its folder"):
        make("locomo", {})


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"conversation": []}, "'conversation' should be an object, not list"),
        ({"conversation": {}}, "'conversation' has no session"),
        ({"conversation": {**TALK, "session_1_date_time": " "}}, "'session_1_date_time' is empty"),
        ({"conversation": {**TALK, "session_3": "hello"}}, "'session_3' should be a list"),
        ({"conversation": {**TALK, "session_2": [{"speaker": "Bob"}]}}, "'text' is missing"),
        ({"conversation": {**TALK, "session_2": ["hello"]}}, "'session_2' should hold objects"),
        ({"qa": []}, "'qa' is empty"),
        ({"sample_id": 3}, "'sample_id' should be a string"),
    ],
)
def test_damaged_conversations(fields: dict[str, object], reason: str, tmp_path: Path) -> None:
    good, bad = examples(folder(tmp_path, talk(), talk(**fields)), categories="4")
    assert isinstance(good, Example)
    assert isinstance(bad, BadRow)
    assert bad.line == 2
    assert bad.reason.startswith(reason)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"answer": " "}, "'answer' is empty"),
        ({"answer": True}, "'answer' should be a whole number"),
        ({"answer": None}, "'answer' should be a string"),
        ({"question": ""}, "'question' is empty"),
        ({"category": 7}, "'category' should be 1 to 5"),
        ({"category": [4]}, "'category' should be a whole number"),
    ],
)
def test_damaged_questions(fields: dict[str, object], reason: str, tmp_path: Path) -> None:
    asked = [QA[3], {**QA[3], **fields}]
    good, bad = examples(folder(tmp_path, talk(qa=asked)), categories="4")
    assert isinstance(good, Example)
    assert isinstance(bad, BadRow)
    assert str(bad).startswith(f"{tmp_path}/locomo10.json, conv-1, line 2: {reason}")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"[", "the file is damaged or not JSON"),
        (b"\xff[]", "the file is damaged or not JSON"),
        (b"{}", "should be a JSON list, not dict"),
        (b"[1]", "should be a JSON object, not int"),
    ],
)
def test_damaged_files(content: bytes, reason: str, tmp_path: Path) -> None:
    (tmp_path / "locomo1.json").write_bytes(content)
    (bad,) = examples(tmp_path)
    assert isinstance(bad, BadRow)
    assert bad.reason.startswith(reason)
