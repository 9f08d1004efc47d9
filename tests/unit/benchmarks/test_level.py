"""A cell that was run later has the rows of an earlier one where nothing was dropped, and no others."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import level
from infinipot.eval.folder import read_rows


def row(cell: str, example: str, cycles: int, prediction: str, **more: Any) -> dict[str, Any]:
    told = {"kind": "example", "cell": cell, "example": example, "score": 1.0, "prediction": prediction}
    return {**told, "cycles": cycles, **more}


def test_rows_of_which_nothing_was_dropped_are_those_of_the_earlier_cell(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [
        row("old", "a", 0, "yes"),
        row("old", "b", 0, "no", same_as="oldest"),
        row("old", "c", 3, "maybe"),
        row("new", "a", 0, "Yes!"),
        row("new", "b", 0, "no"),
        row("new", "c", 3, "perhaps"),
        row("new", "d", 0, "only here"),
        {"kind": "bad", "file": "x", "line": 1, "reason": "no JSON"},
    ]
    level.write(tmp_path / "rows.jsonl.xz", rows)
    level.main([str(tmp_path), "new", "old"])
    assert "new: 2 rows, of which 1 were answered otherwise, are those of old" in capsys.readouterr().out
    now = {(one["cell"], one["example"]): one for one in read_rows(tmp_path) if one["kind"] == "example"}
    assert len(now) == 7
    assert (now["new", "a"]["prediction"], now["new", "a"]["same_as"]) == ("yes", "old")
    assert now["new", "b"]["same_as"] == "oldest"
    assert now["new", "c"]["prediction"] == "perhaps"
    assert "same_as" not in now["new", "d"]
    assert level.leveled(read_rows(tmp_path), "new", "old")[1] == []  # twice changes nothing


def test_rows_that_were_replaced_before_stay_beside_those_of_another_cell(tmp_path: Path) -> None:
    rows = [row(cell, "a", 0, cell) for cell in ("old", "new", "newest")]
    level.write(tmp_path / "rows.jsonl.xz", rows)
    for cell in ("new", "newest"):
        level.main([str(tmp_path), cell, "old"])
    assert [one["cell"] for one in level.replaced(tmp_path)] == ["new", "newest"]


def test_rows_that_are_not_packed_would_be_read_instead_so_they_are_refused(tmp_path: Path) -> None:
    rows = [row("old", "a", 0, "yes"), row("new", "a", 0, "Yes!")]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(one) + "\n" for one in rows))
    with pytest.raises(SystemExit, match="pack it with `xz` first"):
        level.main([str(tmp_path), "new", "old"])
