"""From what was typed to a task: the right examples, and one line for what cannot be."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import infinipot.eval.tasks
from infinipot.errors import InfiniPotError
from infinipot.eval.grid import BY_TASK
from infinipot.eval.tasks.task import Example, make, task_options, tasks


def examples(name: str, seed: int = 0, **wanted: Any) -> list[Example]:
    return list(make(name, wanted, seed).examples(len))


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
    made = make("needle", {"lengths": "1k", "hay": "noise"})
    assert made.describe() == {
        "lengths": [1024],
        "depths": [0.1, 0.5, 0.9],
        "trials": made.trials,
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
    assert make("longbench", {"data": data}).describe() == {"tasks": ["qasper", "musique"]}
    assert make("longbench", {"data": data, "e": True}).describe() == {"tasks": ["qasper_e"]}
    made = make("longbench", {"data": data, "tasks": "all"})
    assert made.describe() == {"tasks": ["qasper", "musique", "qasper_e"]}
    assert tasks()["longbench"].catalyst == BY_TASK
    assert [e.facts["task"] for e in made.examples(len)] == ["qasper", "musique", "qasper_e"]
    assert make("longbench", {"data": data, "tasks": "qasper", "e": True}).describe() == {
        "tasks": ["qasper_e"]
    }


def test_babilong_and_kv_retrieval_by_their_files(data: Path) -> None:
    assert make("babilong", {"data": data, "lengths": "4k"}).describe() == {"tasks": ["4k_qa1", "4k_qa2"]}
    assert make("babilong", {"data": data, "tasks": "qa1"}).describe() == {"tasks": ["0k_qa1", "4k_qa1"]}
    made = make("babilong", {"data": data, "lengths": "4k"})
    assert [made.score("The kitchen.", e) for e in made.examples(len)] == [1.0, 1.0]
    assert examples("kv-retrieval", data=data)[0].answers == ("b",)


@pytest.mark.parametrize(
    ("name", "wanted", "says"),
    [
        ("passkye", {}, "unknown task 'passkye': did you mean 'passkey'?"),
        ("passkey", {"hay": "noise"}, "`hay` is for facts and needle and ruler: leave it out for passkey"),
        (
            "longbench",
            {"trials": 3},
            "`trials` is for needle and passkey and ruler and variable-tracking: leave it out for longbench",
        ),
        ("passkey", {"lengths": "8x"}, "`lengths` is '8x': use a whole number"),
        ("passkey", {"lengths": ","}, "`lengths` is empty"),
        ("passkey", {"depths": "2"}, "`depths` is 2: use 0 to 1"),
        ("passkey", {"trials": 0}, "`trials` is 0: use at least 1"),
        ("needle", {"needle": "pasky"}, "unknown needle 'pasky'"),
        ("needle", {"needle": "Ada likes tea."}, "a question and an answer"),
        ("needle", {"question": "What?"}, "has its own question"),
        ("needle", {"hay": "/nowhere"}, "/nowhere"),
        ("longbench", {"tasks": "qaspr"}, "did you mean 'qasper'"),
        ("longbench", {"data": Path("/nowhere")}, "there is no folder /nowhere"),
        ("babilong", {}, "give `data` its folder"),
        ("kv-retrieval", {"data": Path("/nowhere")}, "there is no folder /nowhere"),
    ],
)
def test_what_cannot_be_is_one_line(name: str, wanted: dict[str, Any], says: str) -> None:
    with pytest.raises(InfiniPotError) as caught:
        make(name, wanted)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_every_task_declares_itself() -> None:
    assert list(tasks()) == [
        *(
            "babilong",
            "facts",
            "kv-retrieval",
            "locomo",
            "longbench",
            "needle",
            "passkey",
            "ruler",
            "variable-tracking",
        )
    ]
    for task in tasks().values():
        assert task.help
        assert task.options


@pytest.fixture
def _own(tmp_path: Path) -> Iterator[None]:
    """The task of the docs' page as one more file of the folder."""
    page = (Path(__file__).parents[3] / "docs" / "evaluation.md").read_text("utf-8")
    (tmp_path / "alphabet.py").write_text(page.split("```python\n")[1].split("```")[0])
    infinipot.eval.tasks.__path__.append(str(tmp_path))
    for known in (tasks, task_options):
        known.cache_clear()
    yield
    infinipot.eval.tasks.__path__.remove(str(tmp_path))
    sys.modules.pop("infinipot.eval.tasks.alphabet")
    for known in (tasks, task_options):
        known.cache_clear()


@pytest.mark.usefixtures("_own")
def test_a_new_task_is_one_file() -> None:
    assert "letters" in {option.name for option in task_options()}
    task = make("alphabet", {"letters": "3"})
    assert [example.answers for example in task.examples(len)] == [("B",), ("C",)]
    assert task.describe() == {"letters": 3}
    with pytest.raises(InfiniPotError, match="`letters` is 27: use 2 to 26"):
        make("alphabet", {"letters": 27})
    with pytest.raises(InfiniPotError, match="`letters` is for alphabet: leave it out for passkey"):
        make("passkey", {"letters": 3})


def test_options_of_the_same_name_are_one() -> None:
    found = {option.name: option for option in task_options()}
    assert list(found) == sorted(set(found), key=list(found).index)
    assert found["lengths"].kind is str
    assert "e.g. 8k,128k,1m (facts, needle, passkey, ruler, variable-tracking)" in found["lengths"].help
    assert found["lengths"].shown == "the task's"
    assert found["depths"].shown == "0.1,0.5,0.9"
    assert all(option.default is None for option in found.values())


def test_values_need_not_be_texts() -> None:
    assert make("passkey", {"lengths": (512,), "depths": [0.5], "trials": 1}).describe() == {
        "lengths": [512],
        "depths": [0.5],
        "trials": 1,
    }
    with pytest.raises(InfiniPotError, match="`depths` is 2: use 0 to 1"):
        make("passkey", {"depths": (2,)})
