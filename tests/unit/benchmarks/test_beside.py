"""The paper's tables beside ours: differences are judged by their interval, levels never."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import beside
from infinipot.eval.estimates import Estimate
from infinipot.eval.folder import read_rows
from infinipot.eval.grid import Grid
from paper.beside import PAPER, verdict
from paper.models import other_models
from toy_eval import kept_run


def test_a_difference_agrees_contradicts_or_is_not_told_apart() -> None:
    assert verdict(-4.3, Estimate(-0.05, -0.08, -0.01, 60)) == "agrees"
    assert verdict(-4.3, Estimate(0.05, 0.01, 0.08, 60)) == "contradicts"
    assert verdict(-4.3, Estimate(0.01, -0.02, 0.04, 60)) == "not told apart"
    assert verdict(-4.3, Estimate(-1.0, -1.0, -1.0, 3)) == "not told apart"  # three rows tell nothing
    assert verdict(-4.3, None) == "not run"


def test_the_paper_s_averages_are_those_of_its_cells() -> None:
    for table in ("table1", "table1_llama2"):
        for label, (*tasks, average) in PAPER[table].items():
            assert len(tasks) == len(PAPER["tasks"]) == 16
            # Rounding, but for InfiniPot-4K: its cells have the mean 41.42, and 41.50 is printed.
            assert abs(sum(tasks) / 16 - average) < (0.09 if label == "InfiniPot-4K" else 0.01), label
    sizes = [len(names) for names in PAPER["groups"].values()]
    for table in ("table2", "table3"):
        for label, (*groups, average) in PAPER[table].items():
            mean = sum(n * group for n, group in zip(sizes, groups, strict=True)) / sum(sizes)
            assert abs(mean - average) < 0.05, label


def test_the_page_in_the_docs_is_what_the_script_makes() -> None:
    page = Path(__file__).parents[3] / "docs" / "paper.md"
    assert page.read_text("utf-8") == beside.page()


def test_cells_of_today_s_code_are_taken_where_they_have_all_rows_and_the_others_are_of_earlier_code(
    tmp_path: Path,
) -> None:
    recipes = Grid(("infinipot", "truncate", "full"), catalysts=("by-task",))
    asked = [(f"qasper/{n}", {"task": "qasper"}) for n in range(12)]
    there = tmp_path / "longbench"
    kept_run(there, "longbench", recipes, asked, lambda cell, name, facts: 0.5)
    rows = [row for row in read_rows(there) if (row["cell"], row["example"]) != ("full", "qasper/11")]
    (there / "rows.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    page = beside.page(today=tmp_path)
    new, _, earlier = page.partition("## Table 2")[0].partition("Recipes without all of these rows yet")
    assert "Today's code, the half `report`, 12 rows" in new
    assert "| TR-4K | 37.20 | 50.0 | -4.30 | +0.0 (0.0 to 0.0) | not told apart |" in new
    assert "| TR-2K | 31.24 | 50.0 |" in new
    assert "PT-8K" not in new
    assert "| PT-8K | 42.91 |" in earlier
    assert "TR-4K" not in earlier
    assert "today's code, by rows | +0.0 (0.0 to 0.0) | – | – |" in page


def test_another_model_s_tables_keep_the_question_known_and_unknown_apart(tmp_path: Path) -> None:
    def score(cell: Any, name: str, facts: dict[str, Any]) -> float:
        return float(cell.catalyst in ("by-task", "question") or facts.get("length") == 4096)

    recipes, model = (
        ("infinipot", "truncate", "snapkv"),
        {"name": "toy", "file": "GGUF Q4_1", "dtype": "bfloat16"},
    )
    keys = [(f"{length}-{n}", {"length": length}) for length in (4096, 8192) for n in range(6)]
    asked = [(f"{task}/{n}", {"task": task}) for task in ("qasper", "qasper_e") for n in range(6)]
    kept: Any = {"model": {**model, "weights": "sample:a", "device": "cpu", "format": "plain"}}
    kept["options"] = {"part": "report"}
    for name, rows, known in (("longbench", asked, "by-task"), ("essays-short", keys, "question")):
        kept_run(tmp_path / name, "toy", Grid(recipes, catalysts=(known, "general")), rows, score, **kept)
    told = "\n".join(other_models([tmp_path]))
    assert "`toy`, a file of GGUF Q4_1, held and computed in bfloat16. 12 rows" in told
    assert "half `report` (qasper 12); 0 fit the pot." in told
    with_it, without = told.split("| question unknown")
    assert "| InfiniPot | 100.0 (75.8 to 100.0) |  | 12 of 12 (6/6, 6/6) |  |" in with_it
    less = "6 of 12 (6/6, 0/6) | **-50.0 (-83.3 to -25.0)** |"
    assert f"| truncated to the pot | 0.0 (0.0 to 24.2) | **-100.0 (-100.0 to -100.0)** | {less}" in with_it
    assert "| InfiniPot | 0.0 (0.0 to 24.2) |  | 6 of 12 (6/6, 0/6) |  |" in without
    assert "SnapKV" in with_it
    assert "SnapKV" not in without
    assert list(other_models([])) == []
