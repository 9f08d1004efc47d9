"""From what was typed to a task: the right examples, and one line for what cannot be."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from infinipot.errors import InfiniPotError
from infinipot.eval.tasks.registry import TASKS, Wanted, make
from infinipot.eval.tasks.task import Example


def examples(name: str, seed: int = 0, **wanted: Any) -> list[Example]:
    return list(make(name, Wanted(**wanted), seed).task.examples(len))


def rows(path: Path, *found: dict[str, Any]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in found))


def longbench_row(dataset: str, n: int) -> dict[str, Any]:
    return {
        "_id": f"{dataset}{n}",
        "dataset": dataset,
        "input": "Who?",
        "context": "Ada was here.",
        "answers": ["Ada"],
        "length": 3,
        "language": "en",
        "all_classes": None,
    }


@pytest.fixture
def data(tmp_path: Path) -> Path:
    rows(tmp_path / "qasper.jsonl", longbench_row("qasper", 1), longbench_row("qasper_e", 2))
    rows(tmp_path / "musique.jsonl", longbench_row("musique", 1))
    for name in ("0k_qa1", "4k_qa1", "4k_qa2"):
        fact = {"input": "Mary went to the kitchen.", "question": "Where is Mary?", "target": "kitchen"}
        rows(tmp_path / f"{name}.jsonl", fact)
    rows(tmp_path / "kv_75_keys.jsonl", {"ordered_kv_records": [["a", "b"]], "key": "a", "value": "b"})
    return tmp_path


def test_passkeys_and_needles_of_every_length_and_depth() -> None:
    found = examples("passkey", lengths="512,1k", depths="0,1", trials=2)
    assert [e.facts["length"] for e in found] == [512] * 4 + [1024] * 4
    assert len({e.id for e in found}) == 8
    assert examples("passkey", seed=1, lengths="512")[0].answers != found[0].answers
    made = make("needle", Wanted(lengths="1k", hay="noise"), 0)
    assert made.options == {
        "lengths": [1024],
        "depths": [0.1, 0.5, 0.9],
        "trials": made.task.trials,
        "hay": "noise",
        "needle": "The pass key is {key}. Remember it. {key} is the pass key.",
    }


def test_a_needle_of_your_own_in_hay_of_your_own(tmp_path: Path) -> None:
    (tmp_path / "hay.txt").write_text("It rained. " * 300)
    own = {"needle": "Ada likes tea.", "question": "What does Ada like?", "answer": "tea"}
    found = examples("needle", lengths="500", depths="0.5", trials=1, hay=str(tmp_path), **own)
    assert "Ada likes tea." in found[0].text
    assert "It rained." in found[0].text


def test_longbench_takes_what_is_there(data: Path) -> None:
    assert make("longbench", Wanted(data=data), 0).options == {"tasks": ["qasper", "musique"]}
    assert make("longbench", Wanted(data=data, e=True), 0).options == {"tasks": ["qasper_e"]}
    made = make("longbench", Wanted(data=data, tasks="all"), 0)
    assert made.options == {"tasks": ["qasper", "musique", "qasper_e"]}
    assert made.catalyst == "by-task"
    assert [e.facts["task"] for e in made.task.examples(len)] == ["qasper", "musique", "qasper_e"]
    assert make("longbench", Wanted(data=data, tasks="qasper", e=True), 0).options == {"tasks": ["qasper_e"]}


def test_babilong_and_kv_retrieval_by_their_files(data: Path) -> None:
    assert make("babilong", Wanted(data=data, lengths="4k"), 0).options == {"tasks": ["4k_qa1", "4k_qa2"]}
    assert make("babilong", Wanted(data=data, tasks="qa1"), 0).options == {"tasks": ["0k_qa1", "4k_qa1"]}
    made = make("babilong", Wanted(data=data, lengths="4k"), 0)
    assert [made.task.score("The kitchen.", e) for e in made.task.examples(len)] == [1.0, 1.0]
    assert examples("kv-retrieval", data=data)[0].answers == ("b",)


@pytest.mark.parametrize(
    ("name", "wanted", "says"),
    [
        ("passkye", {}, "unknown task 'passkye'; did you mean 'passkey'?"),
        ("passkey", {"hay": "noise"}, "--hay is for needle: leave it out for passkey"),
        ("longbench", {"trials": 3}, "--trials is for passkey and needle: leave it out for longbench"),
        ("passkey", {"lengths": "8x"}, "--lengths has '8x'; use sizes such as 8k or 1m"),
        ("passkey", {"depths": "2"}, "--depths has '2'; use numbers from 0 to 1"),
        ("passkey", {"trials": 0}, "trials must be at least 1"),
        ("needle", {"needle": "pasky"}, "unknown needle 'pasky'"),
        ("needle", {"needle": "Ada likes tea."}, "a question and an answer"),
        ("needle", {"question": "What?"}, "has its own question"),
        ("needle", {"hay": "/nowhere"}, "/nowhere"),
        ("longbench", {"tasks": "qaspr"}, "did you mean 'qasper'"),
        ("longbench", {"data": Path("/nowhere")}, "there is no folder /nowhere"),
        ("babilong", {}, "--data DIR"),
        ("kv-retrieval", {"data": Path("/nowhere")}, "there is no folder /nowhere"),
    ],
)
def test_what_cannot_be_is_one_line(name: str, wanted: dict[str, Any], says: str) -> None:
    with pytest.raises(InfiniPotError) as caught:
        make(name, Wanted(**wanted), 0)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_every_task_of_the_command_is_here() -> None:
    assert TASKS == ("passkey", "needle", "longbench", "babilong", "kv-retrieval")
