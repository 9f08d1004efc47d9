"""LongBench: official prompts, rows of every kind, scores worked out by hand."""

from __future__ import annotations

import json
import lzma
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from infinipot.errors import ConfigError, InputError
from infinipot.eval.tasks.longbench import BUCKETS, LongBench, bucket, descriptions, names, present
from infinipot.eval.tasks.task import BadRow, Example, Several

NO_CHAT = {"trec", "triviaqa", "samsum", "lsht", "lcc", "repobench-p"}
FIRST_LINE = {"trec", "triviaqa", "samsum", "lsht"}
QA = {
    "narrativeqa",
    "qasper",
    "multifieldqa_en",
    "multifieldqa_zh",
    "hotpotqa",
    "2wikimqa",
    "musique",
    "dureader",
}


def row(dataset: str, **fields: object) -> dict[str, object]:
    return {
        "input": "Who?",
        "context": "A long {input} text.\u2028It goes on.",
        "answers": ["Anna"],
        "length": 4000,
        "dataset": dataset,
        "language": "en",
        "all_classes": None,
        "_id": "id-1",
        **fields,
    }


def write(folder: Path, name: str, *rows: object) -> Path:
    path = folder / f"{name}.jsonl.xz"
    with lzma.open(path, "wt", encoding="utf-8") as file:
        file.writelines(
            (one if isinstance(one, str) else json.dumps(one, ensure_ascii=False)) + "\n" for one in rows
        )
    return path


def only(folder: Path, name: str, **fields: object) -> tuple[LongBench, Example]:
    """Return the task and its one example."""
    base = name.removesuffix("_e")
    if descriptions()[base].metric == "classification":
        fields = {"all_classes": ["Date", "City"], **fields}
    write(folder, base, row(name, **fields))
    task = LongBench(name, folder)
    (found,) = task.examples(len)
    assert isinstance(found, Example)
    return task, found


def test_there_are_21_tasks_and_13_with_even_lengths() -> None:
    assert len(descriptions()) == 21
    assert len(names()) == 34
    assert "qasper_e" in names()
    assert "narrativeqa_e" not in names()
    assert {name for name, known in descriptions().items() if known.asks} == QA
    assert sum(known.language == "zh" for known in descriptions().values()) == 5


@pytest.mark.parametrize("name", sorted(descriptions()))
def test_text_and_question_are_the_official_prompt(name: str, tmp_path: Path) -> None:
    task, example = only(tmp_path, name)
    known = descriptions()[name]
    fields = row(name)
    assert example.text + example.question == known.prompt.format(**fields)
    assert example.text.endswith(str(fields["context"]))
    assert example.bare
    assert example.chat is (False if name in NO_CHAT else None)
    assert example.one_line is (name == "samsum")
    assert example.query == ("Who?" if name in QA else "")
    assert example.new_tokens == known.max_tokens
    assert example.facts == {"dataset": name, "length": 4000, "bucket": "4-8k", "language": "en"}
    assert (task.name, example.id, example.answers) == (name, "id-1", ("Anna",))


def test_typos_of_the_prompts_are_kept() -> None:
    assert "asconcisely as you can" in descriptions()["narrativeqa"].prompt
    assert (
        descriptions()["lcc"].prompt
        == "Please complete the code given below. \n{context}Next line of code:\n"
    )
    assert descriptions()["passage_count"].prompt.endswith("The final answer is: ")
    lengths = {name: known.max_tokens for name, known in descriptions().items()}
    assert (lengths["qasper"], lengths["hotpotqa"], lengths["gov_report"], lengths["trec"]) == (
        128,
        32,
        512,
        64,
    )


ANSWERS: list[tuple[str, list[str], str, float]] = [
    ("hotpotqa", ["Anna Smith", "Bob"], "It is Bob.", 2 * (1 / 3) * 1 / (1 / 3 + 1)),  # the better reference
    ("hotpotqa", ["Anna"], "Anna\nQuestion: more", 2 * (1 / 3) / (4 / 3)),  # all lines count
    ("triviaqa", ["Anna"], "\n\nAnna\nQuestion: more", 1.0),  # only the first line counts
    ("samsum", ["Anna sings"], "Anna sings\nDialogue: more", 1.0),
    ("gov_report", ["the cat sat down"], "the cat", 2 / 3),
    ("trec", ["City"], "City\nDate", 1.0),
    ("trec", ["City"], "City or Date", 0.5),
    ("lsht", ["City"], "Date", 0.0),
    ("passage_count", ["6"], "6 or 7", 0.5),
    ("passage_retrieval_en", ["Paragraph 3"], "Paragraph 3", 1.0),
    ("passage_retrieval_zh", ["段落3"], "段落3和段落4", 0.5),
    ("lcc", ["abd"], "# note\nabc", 0.67),
    ("repobench-p", ["return x"], "\n\nreturn x\nmore", 1.0),
    ("multifieldqa_zh", ["我爱北京天安门"], "北京", 0.4),
    ("dureader", ["我爱北京天安门"], "北京天安门", 2 / 3),
    ("vcsum", ["北京"], "北京", 1.0),
]


@pytest.mark.parametrize(("name", "answers", "prediction", "wanted"), ANSWERS)
def test_scores(name: str, answers: list[str], prediction: str, wanted: float, tmp_path: Path) -> None:
    task, example = only(tmp_path, name, answers=answers)
    assert task.score(prediction, example) == pytest.approx(wanted, abs=1e-7)


@pytest.mark.parametrize("name", sorted(descriptions()))
def test_the_answer_itself_is_right(name: str, tmp_path: Path) -> None:
    answer = {"trec": "City", "lsht": "City", "passage_count": "12"}.get(name, "Paragraph 7 段落7")
    task, example = only(tmp_path, name, answers=["wrong", answer])
    assert task.score(answer, example) == pytest.approx(1)
    assert task.score("", example) == 0


def test_lengths_fall_into_buckets() -> None:
    assert [bucket(length) for length in (0, 3999, 4000, 7999, 8000, 30000)] == [
        BUCKETS[place] for place in (0, 0, 1, 1, 2, 2)
    ]


def test_a_file_may_hold_both_a_task_and_its_twin(tmp_path: Path) -> None:
    write(tmp_path, "qasper", row("qasper", _id="plain"), row("qasper_e", _id="even", length=9000))
    (plain,) = LongBench("qasper", tmp_path).examples(len)
    (even,) = LongBench("qasper_e", tmp_path).examples(len)
    assert isinstance(plain, Example)
    assert isinstance(even, Example)
    assert (plain.id, plain.facts["dataset"]) == ("plain", "qasper")
    assert (even.id, even.facts["dataset"], even.facts["bucket"]) == ("even", "qasper_e", "8k+")
    assert present(tmp_path) == ("qasper", "qasper_e")


def test_a_twin_may_have_a_file_of_its_own_with_the_plain_name_in_its_rows(tmp_path: Path) -> None:
    write(tmp_path, "qasper_e", row("qasper"))
    (even,) = LongBench("qasper_e", tmp_path).examples(len)
    assert isinstance(even, Example)
    assert even.facts["dataset"] == "qasper_e"
    assert present(tmp_path) == ("qasper_e",)
    with pytest.raises(InputError, match=r"has no qasper\.jsonl .*data\.zip"):
        LongBench("qasper", tmp_path)


def test_no_row_of_a_task_is_an_error(tmp_path: Path) -> None:
    write(tmp_path, "qasper", row("qasper"))
    with pytest.raises(InputError, match="has no row of qasper_e"):
        list(LongBench("qasper_e", tmp_path).examples(len))


BAD: dict[str, tuple[object, str]] = {
    "not JSON": ("{", "not JSON"),
    "no context": ({"input": "Who?"}, "'dataset' is missing"),
    "another task": (row("hotpotqa"), "'dataset' should be 'qasper' or 'qasper_e', not 'hotpotqa'"),
    "answers": (row("qasper", answers="Anna"), "'answers' should be a list, not str"),
    "no answer": (row("qasper", answers=[]), "'answers' is empty"),
    "length": (row("qasper", length="long"), "'length' should be a whole number, not str"),
    "context": (row("qasper", context=" "), "'context' is empty"),
    "no question": (row("qasper", input=""), "'input' is empty"),
    "id": (row("qasper", _id=None), "'_id' should be a string, not NoneType"),
}


@pytest.mark.parametrize("wrong", sorted(BAD))
def test_a_bad_row_is_named_with_file_and_line(wrong: str, tmp_path: Path) -> None:
    content, reason = BAD[wrong]
    path = write(tmp_path, "qasper", row("qasper", _id="a"), content, row("qasper", _id="b"))
    first, bad, last = LongBench("qasper", tmp_path).examples(len)
    assert isinstance(bad, BadRow)
    assert (bad.file, bad.line) == (str(path), 2)
    assert bad.reason.startswith(reason)
    assert isinstance(first, Example)
    assert isinstance(last, Example)
    assert (first.id, last.id) == ("a", "b")


def test_classes_are_needed_where_they_are_scored(tmp_path: Path) -> None:
    write(tmp_path, "trec", row("trec"))
    (bad,) = LongBench("trec", tmp_path).examples(len)
    assert isinstance(bad, BadRow)
    assert "all_classes" in bad.reason


def test_an_unknown_task_is_told_near_names() -> None:
    with pytest.raises(ConfigError, match="no LongBench task 'hotpot_qa': did you mean 'hotpotqa'"):
        LongBench("hotpot_qa")
    with pytest.raises(ConfigError, match=r"'musique_e'.* did you mean 'musique'"):
        LongBench("musique_e")
    with pytest.raises(ConfigError, match=r"use one of narrativeqa, qasper, .*"):
        LongBench("zzzz")


def test_a_missing_folder_says_how_to_get_it(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"there is no folder .*nowhere: unpack data\.zip"):
        LongBench("qasper", tmp_path / "nowhere")
    with pytest.raises(InputError, match="there is no folder"):
        present(tmp_path / "nowhere")


def test_the_folders_own_prompts_and_lengths_go_first(tmp_path: Path) -> None:
    (tmp_path / "dataset2prompt.json").write_text(
        json.dumps({"qasper": "Q: {input} C: {context} Q: {input}"})
    )
    (tmp_path / "dataset2maxlen.json").write_text(json.dumps({"qasper": 7, "trec": 9}))
    _, example = only(tmp_path, "qasper", context="text")
    assert (example.text, example.question, example.new_tokens) == ("Q: Who? C: text", " Q: Who?", 7)
    _, other = only(tmp_path, "hotpotqa")
    assert other.new_tokens == 32  # not in the folder's files


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("dataset2prompt.json", "{"),
        ("dataset2prompt.json", "[]"),
        ("dataset2prompt.json", '{"qasper": 3}'),
        ("dataset2prompt.json", '{"qasper": "no place for it"}'),
        ("dataset2maxlen.json", '{"qasper": "128"}'),
    ],
)
def test_a_folders_broken_settings_are_found_at_once(file: str, content: str, tmp_path: Path) -> None:
    write(tmp_path, "qasper", row("qasper"))
    (tmp_path / file).write_text(content)
    with pytest.raises(InputError, match=file):
        LongBench("qasper", tmp_path)


def hub(monkeypatch: pytest.MonkeyPatch, load: Any) -> None:
    module = ModuleType("datasets")
    module.load_dataset = load  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "datasets", module)


def test_without_a_folder_rows_come_from_the_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def load(kind: str, data_files: dict[str, str], split: str) -> list[dict[str, object]]:
        asked.append((kind, data_files[split]))
        return [row("qasper_e"), row("qasper_e", context=None, _id="2")]

    hub(monkeypatch, load)
    good, bad = LongBench("qasper_e").examples(len)
    assert asked == [("json", "zip://data/qasper_e.jsonl::hf://datasets/THUDM/LongBench/data.zip")]
    assert isinstance(good, Example)
    assert isinstance(bad, BadRow)
    assert (bad.file, bad.line) == ("THUDM/LongBench qasper_e", 2)


def test_a_hub_that_cannot_be_reached_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    def load(*args: object, **options: object) -> None:
        raise RuntimeError("Name or service\nnot known")

    hub(monkeypatch, load)
    with pytest.raises(
        InputError, match=r"does not load \(Name or service not known\): unpack data\.zip"
    ) as caught:
        list(LongBench("qasper").examples(len))
    assert "\n" not in str(caught.value)
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(ConfigError, match=r"no data folder given: unpack data\.zip .* pip install datasets"):
        list(LongBench("qasper").examples(len))


def test_several_tasks_are_one_with_the_scores_of_each(tmp_path: Path) -> None:
    write(tmp_path, "trec", row("trec", answers=["City"], all_classes=["City", "Date"]))
    write(tmp_path, "passage_count", row("passage_count", answers=["6"]), "{")
    both = Several("longbench", tuple(LongBench(name, tmp_path) for name in present(tmp_path)))
    first, second, bad = both.examples(len)
    assert isinstance(first, Example)
    assert isinstance(second, Example)
    assert isinstance(bad, BadRow)
    assert (first.id, first.facts["task"]) == ("trec/id-1", "trec")
    assert (second.id, second.facts["task"]) == ("passage_count/id-1", "passage_count")
    assert both.score("City Date", first) == 0.5
    assert both.score("6", second) == 1
    for parts in ((), (LongBench("trec", tmp_path),) * 2):
        with pytest.raises(ConfigError, match="different names"):
            Several("longbench", parts)
