"""Ways asked after one reading: each answers as `infinipot eval` does for a cell of its own."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import recall_kept
import recall_plan
import toy_eval as toy
import ways
from infinipot.eval.grid import Grid
from infinipot.eval.runner import Job, Runner
from infinipot.eval.tasks.task import Count, Example
from infinipot.reading import recalled

CAPACITY = 2048
HAY = "".join(f"On day {day} the ship lay in the harbour, and nothing came of it. " for day in range(70))
TEXT = HAY + "The zebra of the captain was called Zorro by all hands. " + HAY
ASKED = ("Who was called Zorro?", "What came on day 12?")


@dataclass(frozen=True)
class Log:
    """A long text with two questions."""

    name: str = "log"

    def describe(self) -> dict[str, Any]:
        return {}

    def examples(self, count: Count) -> Iterator[Example]:
        for number, question in enumerate(ASKED):
            yield Example(f"log-{number}", TEXT, question + " Briefly.", ("a",), 6, question, shared=True)

    def score(self, prediction: str, example: Example) -> float:
        return len(prediction) / 100


@pytest.fixture
def args(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> argparse.Namespace:
    asked = [one for one in Log().examples(len) if isinstance(one, Example)]
    monkeypatch.setattr(ways, "questions", lambda *_: (Log(), asked))
    told = {"capacity": CAPACITY, "most": None, "out": tmp_path, "ends": float("inf")}
    return argparse.Namespace(**told, as_asked=False, meaning=0, beside=None)


def test_each_way_answers_as_a_cell_of_its_own_does(args: argparse.Namespace) -> None:
    ways.measure("facts-tune-x", toy.engine(), args)
    rows = [json.loads(line) for line in (args.out / "facts-tune-x.jsonl").read_text("utf-8").splitlines()]
    assert [row["example"] for row in rows] == ["log-0", "log-1"]
    usual: dict[str, tuple[str, ...]] = {"meaning": ("0",)}
    for way, recipe, options in (
        ("words.pot", "infinipot", {"recall": ("512",), **usual}),
        ("words.alone", "passages", {"recall": ("512",), **usual}),
        ("judged.pot", "infinipot", {"recall": ("512",), "judge": (str(ways.JUDGED),), **usual}),
        ("judged.alone", "passages", {"recall": ("512",), "judge": (str(ways.JUDGED),), **usual}),
        ("pure.pot", "infinipot", {"recall": ("0",)}),
    ):
        (cell,) = Grid((recipe,), (CAPACITY,), ("general",), options).cells("plain")
        runner = Runner(toy.engine())
        said = [runner.one(Job(cell, one)).prediction for one in Log().examples(len)]
        assert [row["ways"][way]["said"] for row in rows] == said, way
    assert len({row["ways"][way]["said"] for row in rows for way in row["ways"]}) > 2  # ways differ


def test_a_question_as_asked_is_answered_as_its_cell_is(
    args: argparse.Namespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recalled, "affordable", lambda _: 8)  # as on a card
    ways.measure("facts-tune-x", toy.engine(), argparse.Namespace(**{**vars(args), "as_asked": True}))
    rows = [json.loads(line) for line in (args.out / "facts-tune-x.jsonl").read_text("utf-8").splitlines()]
    options = {"recall": ("512",), "meaning": ("0",)}
    (cell,) = Grid(("infinipot",), (CAPACITY,), ("general",), options).cells("plain")
    runner = Runner(toy.engine())
    said = [runner.one(Job(cell, one)).prediction for one in Log().examples(len)]
    assert [row["ways"]["asked.pot"]["said"] for row in rows] == said


def test_a_run_goes_on_where_it_ended(args: argparse.Namespace) -> None:
    engine = toy.engine()
    ways.measure("facts-tune-x", engine, argparse.Namespace(**{**vars(args), "most": 1}))
    ways.measure("facts-tune-x", engine, args)
    ways.measure("facts-tune-x", engine, args)
    lines = (args.out / "facts-tune-x.jsonl").read_text("utf-8").splitlines()
    assert [json.loads(line)["example"] for line in lines] == ["log-0", "log-1"]
    assert "2 questions: pure.pot" in ways.table(args.out)


def test_steps_of_the_plan_have_names_of_their_own() -> None:
    names = [*recall_plan.names()]
    assert len(names) == len({*names}) > 40
    for as_asked in (False, True):
        only = argparse.Namespace(only="locomo,again", as_asked=as_asked)
        steps = recall_plan.steps(only)
        assert all("locomo" in name or "again" in name for name in steps)
        assert (recall_plan.AGAIN in steps) != as_asked


def test_rows_that_were_put_away_are_gone_on_with(args: argparse.Namespace, tmp_path: Path) -> None:
    run, kept, back = (tmp_path / name for name in ("recall", "kept", "back"))
    few = argparse.Namespace(**{**vars(args), "out": run / "ways", "most": 1})
    ways.measure("facts-tune-x", toy.engine(), few)
    (run / "judging").mkdir()
    (run / "judging" / "statements-x.jsonl").write_text('{"text": "statements-x"}\n', "utf-8")
    (run / recall_plan.AGAIN).mkdir()
    for name in ("manifest.json", "rows.jsonl"):
        (run / recall_plan.AGAIN / name).write_text("{}\n", "utf-8")
    packed = argparse.Namespace(out=run, pack=tmp_path / "recall.tar.xz")
    recall_plan.pack(packed)
    kept.mkdir()
    assert len([*recall_kept.put_away(packed.pack, kept)]) == len([*recall_kept.put_back(kept, back)]) == 3
    for path in (one for one in run.rglob("*") if one.is_file()):
        assert (back / path.relative_to(run)).read_bytes() == path.read_bytes()
    before = (back / "ways" / "facts-tune-x.jsonl").read_text("utf-8")
    ways.measure("facts-tune-x", toy.engine(), argparse.Namespace(**{**vars(args), "out": back / "ways"}))
    after = (back / "ways" / "facts-tune-x.jsonl").read_text("utf-8")
    assert after.startswith(before)
    assert len(after.splitlines()) == 2
    assert not [*recall_kept.put_back(kept, back)]  # what is there already stays
