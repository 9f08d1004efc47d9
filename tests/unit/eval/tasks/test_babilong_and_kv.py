"""BABILong and key-value retrieval: official prompts, official comparison."""

from __future__ import annotations

import json
import lzma
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infinipot.errors import ConfigError, InputError
from infinipot.eval.tasks.babilong import BABILong, prompts
from infinipot.eval.tasks.kv_retrieval import KVRetrieval
from infinipot.eval.tasks.task import BadRow, Example

PAIRS = [["test key1", "test value1"], ["test key2", "Test value2"], ["test key3", "test value3"]]


def write(path: Path, *rows: object) -> None:
    text = "".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows)
    path.write_bytes(lzma.compress(text.encode()))


def babi(folder: Path, name: str = "4k_qa1", **fields: str) -> tuple[BABILong, Example]:
    fields = {
        "input": " Mary went to the office. ",
        "question": "Where is Mary? ",
        "target": "office",
        **fields,
    }
    write(folder / f"{name}.jsonl.xz", fields)
    task = BABILong(name, folder)
    (found,) = task.examples(len)
    assert isinstance(found, Example)
    return task, found


def test_the_official_babilong_prompt(tmp_path: Path) -> None:
    _, example = babi(tmp_path)
    assert example.text + example.question == (
        "I will give you context with the facts about positions of different persons hidden in some random "
        "text and a question. You need to answer the question based only on the information from the facts. "
        "If a person was in different locations, use the latest location to answer the question.\n\n"
        "<example>\nCharlie went to the hallway. Judith come back to the kitchen. Charlie travelled to "
        "balcony. Where is Charlie?\nAnswer: The most recent location of Charlie is balcony.\n</example>\n\n"
        "<example>\nAlan moved to the garage. Charlie went to the beach. Alan went to the shop. Rouse "
        "travelled to balcony. Where is Alan?\nAnswer: The most recent location of Alan is shop."
        "\n</example>\n\n"
        "Always return your answer in the following format: The most recent location of ’person’ is "
        "’location’. Do not write anything else after that.\n\n"
        "<context>\nMary went to the office.\n</context>\n\nQuestion: Where is Mary?"
    )
    assert example.text.endswith("Mary went to the office.")
    assert (example.query, example.answers, example.new_tokens) == ("Where is Mary?", ("office",), 20)
    assert example.facts == {"length": "4k", "task": "qa1"}
    assert example.bare
    assert list(prompts()) == ["qa1", "qa2", "qa3", "qa4", "qa5"]


@pytest.mark.parametrize(
    ("prediction", "wanted"),
    [
        ("office", 1),
        ("The most recent location of Mary is OFFICE. The kitchen too", 1),  # the first sentence counts
        ("The office or the kitchen", 0),
        ("The kitchen", 0),
        ("office<example> kitchen", 1),
        ("office <context> kitchen", 1),
        ("", 0),
    ],
)
def test_babilong_scores(prediction: str, wanted: float, tmp_path: Path) -> None:
    task, example = babi(tmp_path)
    assert task.score(prediction, example) == wanted


def test_labels_of_the_question_do_not_count(tmp_path: Path) -> None:
    task, example = babi(tmp_path, "0k_qa5", question="Who did Fred give the football to?", target="Jeff")
    assert task.score("Fred gave the football to Jeff", example) == 1
    assert task.score("Fred gave the football to Jeff and Bill", example) == 0


@pytest.mark.parametrize("name", ["qa1", "4k_qa6", "4k-qa1", "4k_", "_qa1"])
def test_an_unknown_babilong_task(name: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is not a length and a BABILong task, such as 4k_qa1"):
        BABILong(name, tmp_path)


def test_missing_files_say_how_to_get_them(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"has no 8k_qa1\.jsonl .*RMT-team/babilong"):
        BABILong("8k_qa1", tmp_path)
    with pytest.raises(InputError, match=r"has no kv_75_keys\.jsonl .*lost-in-the-middle"):
        KVRetrieval("kv_75_keys", tmp_path)


def test_bad_rows_of_babilong(tmp_path: Path) -> None:
    good = {"input": "a", "question": "q", "target": "office"}
    wrong = [{**good, "target": "moon"}, {**good, "question": " "}, {"input": "a"}, "[", {**good, "input": 1}]
    write(tmp_path / "1k_qa1.jsonl.xz", good, *wrong)
    first, *bad = BABILong("1k_qa1", tmp_path).examples(len)
    assert isinstance(first, Example)
    reasons = [
        "'target' is 'moon'",
        "'question' is empty",
        "'target' is missing",
        "not JSON",
        "'input' should be",
    ]
    for line, (found, reason) in enumerate(zip(bad, reasons, strict=True), 2):
        assert isinstance(found, BadRow)
        assert found.line == line
        assert found.reason.startswith(reason)


def kv(folder: Path, gold: int | None = None, **fields: object) -> tuple[KVRetrieval, Example | BadRow]:
    row = {"ordered_kv_records": PAIRS, "key": "test key2", "value": "Test value2", **fields}
    write(folder / "kv_75_keys.jsonl.xz", row)
    task = KVRetrieval("kv_75_keys", folder, gold=gold)
    (found,) = task.examples(len)
    return task, found


def test_the_official_kv_prompt(tmp_path: Path) -> None:
    task, example = kv(tmp_path)
    assert isinstance(example, Example)
    assert example.text + example.question == "\n".join(
        [
            "Extract the value corresponding to the specified key in the JSON object below.",
            "",
            "JSON data:",
            '{"test key1": "test value1",',
            ' "test key2": "Test value2",',
            ' "test key3": "test value3"}',
            "",
            'Key: "test key2"',
            "Corresponding value:",
        ]
    )
    assert example.text.endswith("}")
    assert example.facts == {"keys": 3, "gold": 1, "depth": 0.5}
    assert (example.new_tokens, example.query) == (100, 'Key: "test key2"')
    assert task.score('It is "test VALUE2".', example) == 1
    assert task.score("test value3", example) == 0


def test_the_pair_can_be_moved(tmp_path: Path) -> None:
    for gold, order in ((0, "213"), (2, "132")):
        _, example = kv(tmp_path, gold)
        assert isinstance(example, Example)
        places = sorted("123", key=lambda key: example.text.index(f"key{key}"))
        assert ("".join(places), example.facts["gold"]) == (order, gold)
    with pytest.raises(ConfigError, match="use at least 0"):
        KVRetrieval("kv_75_keys", tmp_path, gold=-1)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"ordered_kv_records": []}, "'ordered_kv_records' is empty"),
        ({"ordered_kv_records": [["a"]]}, "'ordered_kv_records' should hold pairs"),
        ({"ordered_kv_records": [["a", 1]]}, "'ordered_kv_records' should hold strings"),
        ({"ordered_kv_records": [*PAIRS, PAIRS[0]]}, "'ordered_kv_records' has a key twice"),
        ({"value": "another"}, "'ordered_kv_records' does not hold the key"),
        ({"key": 3}, "'key' should be a string"),
    ],
)
def test_bad_rows_of_kv(fields: dict[str, object], reason: str, tmp_path: Path) -> None:
    _, found = kv(tmp_path, **fields)
    assert isinstance(found, BadRow)
    assert found.reason.startswith(reason)


def test_a_place_beyond_the_pairs_is_a_bad_row(tmp_path: Path) -> None:
    _, found = kv(tmp_path, gold=3)
    assert isinstance(found, BadRow)
    assert "place 3" in found.reason


@given(prediction=st.text(max_size=40))
def test_scores_are_0_or_1(prediction: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("babi")
    task, example = babi(folder)
    assert task.score(prediction, example) in (0, 1)
    assert task.score(example.answers[0], example) == 1
