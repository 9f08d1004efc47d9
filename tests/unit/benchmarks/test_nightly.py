"""The nightly comparison: what was lost is noticed, what did not change is not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import nightly
from infinipot.eval.folder import MANIFEST, ROWS

OURS = "infinipot 512 question"


def rows(
    right: list[int], seconds: float = 1.0, cell: str = "infinipot 512 question"
) -> list[dict[str, Any]]:
    return [
        {
            "kind": "example",
            "cell": cell,
            "example": f"key-{number}",
            "score": float(score),
            "prediction": f"answer {score}",
            "seconds": {"read": seconds, "answer": 0.1},
        }
        for number, score in enumerate(right)
    ]


def test_the_same_answers_are_no_problem() -> None:
    changes = nightly.compare(rows([1, 1, 0]), rows([1, 1, 0]))
    assert [(one.lost, one.gained, one.reworded) for one in changes] == [([], [], 0)]
    assert nightly.problems(changes, 1.5) == []


def test_many_lost_answers_are_a_regression_and_one_is_only_told() -> None:
    (worse,) = nightly.compare(rows([1] * 18), rows([1] * 10 + [0] * 8))
    assert worse.worse
    assert worse.lost == [f"key-{number}" for number in range(10, 18)]
    assert nightly.problems([worse], 1.5) == ["infinipot 512 question: 8 lost, 0 gained"]
    (one,) = nightly.compare(rows([1] * 18), rows([1] * 17 + [0]))
    assert not one.worse
    assert one.lost == ["key-17"]


def test_cells_are_also_judged_together() -> None:
    other = "truncate 512"
    before = rows([1] * 12) + rows([1] * 12, cell=other)
    now = rows([1] * 10 + [0] * 2) + rows([1] * 9 + [0] * 3, cell=other)
    *_, every = nightly.compare(before, now)
    assert every.cell == nightly.EVERY
    assert every.worse
    assert "truncate 512, key-11" in every.lost


def test_slower_reading_is_told() -> None:
    changes = nightly.compare(rows([1, 1]), rows([1, 1], seconds=1.6))
    assert nightly.problems(changes, 1.5) == ["reading takes 1.60 times as long (allowed: 1.5)"]
    assert nightly.problems(changes, 2.0) == []


def test_the_command_compares_keeps_and_fails_where_quality_fell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    scores = [1] * 12

    def measured(out: Path, args: Any) -> None:
        (out / "noise").mkdir(parents=True, exist_ok=True)
        (out / "noise" / MANIFEST).write_text("{}")
        (out / "noise" / ROWS).write_text("".join(json.dumps(row) + "\n" for row in rows(scores)))

    monkeypatch.setattr(nightly, "measure", measured)
    words = ["--out", str(tmp_path / "out"), "--kept", str(tmp_path / "kept"), "--json"]
    with pytest.raises(SystemExit) as ended:
        nightly.main([*words, "--keep"])
    assert ended.value.code == 0
    assert json.loads(capsys.readouterr().out) == {"compared": False, "problems": [], "cells": []}
    scores[:] = [1] * 4 + [0] * 8
    with pytest.raises(SystemExit) as ended:
        nightly.main(words)
    assert ended.value.code == 1
    told = json.loads(capsys.readouterr().out)
    assert told["problems"] == ["noise: infinipot 512 question: 8 lost, 0 gained"]
    assert told["cells"][0]["score_now"] == 4


def test_a_set_that_was_not_run_stays_kept(tmp_path: Path) -> None:
    for folder, names in (("kept", ("noise", "facts")), ("out", ("noise",))):
        for name in names:
            there = tmp_path / folder / name
            there.mkdir(parents=True)
            (there / MANIFEST).write_text("{}")
            (there / ROWS).write_text("".join(json.dumps(row) + "\n" for row in rows([folder == "kept"])))
    nightly.keep(tmp_path / "out", tmp_path / "kept")
    kept = {row["cell"]: row["score"] for row in nightly.rows_of(tmp_path / "kept")}
    assert kept == {f"facts: {OURS}": 1.0, f"noise: {OURS}": 0.0}


def test_the_sets_have_tasks_that_can_be_made(tmp_path: Path) -> None:
    found = nightly.sets(None)
    assert list(found) == ["noise", "prose"]
    assert nightly.PROSE.exists()
    for task, options, grid in found.values():
        assert nightly.make(task, options, nightly.SEED)
        assert grid.cells()
    assert list(nightly.sets(tmp_path)) == ["noise", "prose", "facts"]
