"""The paper's tables beside ours: differences are judged by their interval, levels never."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import beside
from infinipot.eval.estimates import Estimate
from infinipot.eval.folder import read_rows
from infinipot.eval.grid import Grid
from infinipot.eval.results import load, sections
from paper.beside import PAPER, common, of_many, verdict
from paper.models import other_models
from toy_eval import kept_run


def test_a_difference_agrees_contradicts_or_is_not_told_apart() -> None:
    less, more = Estimate(-0.05, -0.08, -0.01, 60), Estimate(0.05, 0.01, 0.08, 60)
    level, few = Estimate(0.01, -0.02, 0.04, 60), Estimate(-1.0, -1.0, -1.0, 3)
    assert verdict(-4.3, less, (less, less)) == "agrees"
    assert verdict(-4.3, less, (less, level)) == "agrees, not without one row"
    assert verdict(-4.3, more, (more, more)) == "contradicts"
    assert verdict(-4.3, level, (less, less)) == "not told apart"
    assert verdict(-4.3, few, (few, few)) == "not told apart"  # three rows tell nothing
    assert verdict(-4.3, None, ()) == "not run"


def test_a_difference_that_hangs_on_small_tasks_says_so() -> None:
    less, more = Estimate(-0.05, -0.08, -0.01, 60), Estimate(0.05, 0.01, 0.08, 60)
    level = Estimate(-0.01, -0.04, 0.02, 50)
    assert (
        verdict(-4.3, less, (level, level)) == verdict(-4.3, less, (None, None)) == "agrees, by all rows only"
    )
    assert verdict(-4.3, less, (more, more)) == "agrees, by all rows only"
    assert verdict(4.3, less, (level, level)) == "contradicts, by all rows only"


def test_tasks_of_few_rows_are_taken_out_by_what_the_whole_series_has(tmp_path: Path) -> None:
    counts = {"qasper": 6, "qasper_e": 4, "trec": 9}
    asked = [(f"{task}/{n}", {"task": task}) for task, count in counts.items() for n in range(count)]
    grid = Grid(("infinipot", "full"), catalysts=("by-task",))
    kept_run(tmp_path, "longbench", grid, asked, lambda *_: 0.5)
    (section,) = sections(load([tmp_path])[0])
    every, other = section.series
    some = replace(other, rows=other.rows[:3] + other.rows[-1:])
    assert [row["example"] for row in of_many(some, every).rows] == ["qasper/0", "qasper/1", "qasper/2"]
    assert len(of_many(every, every).rows) == 10


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


def test_a_recipe_with_fewer_rows_says_so_and_is_compared_on_those(tmp_path: Path) -> None:
    recipes = Grid(("infinipot", "truncate", "full", "tova", "sirllm"), catalysts=("by-task",))
    asked = [(f"qasper/{n}", {"task": "qasper"}) for n in range(12)]
    grids, there = tmp_path / "half", tmp_path / "half" / "longbench"
    kept_run(there, "longbench", recipes, asked, lambda cell, name, facts: float(name.endswith("11")))
    rows = [row for row in read_rows(there) if (row["cell"], row["example"]) != ("full", "qasper/11")]
    (there / "rows.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    keys = Grid(("infinipot", "ccd"), catalysts=("question",))
    kept_run(grids / "passkey", "passkey", keys, [("a", {"length": 4096, "depth": 0.5})], lambda *_: 1.0)
    page = beside.page(grids)
    assert "its half `report` ([the protocol](evaluation.md#protocol)), 12 rows; a recipe" in page
    assert "| TR-4K | 37.20 | 8.3 | -4.30 | +0.0 (-24.7 to 24.7) | not told apart |" in page
    assert "| PT-8K | 42.91 | 0.0 (11 rows; InfiniPot-4K there 0.0) | +1.41 | +0.0 (-25.9 to 25.9) |" in page
    assert "4K, by rows | +0.0 (-24.7 to 24.7) | +0.0 (-25.9 to 25.9), 11 rows | – |" in page
    assert "| 4,096 | 12 | 8.3 | 8.3 | +0.0 (-24.7 to 24.7) | not told apart |" in page


def test_recipes_stand_beside_the_method_as_printed_too(tmp_path: Path) -> None:
    asked = [(f"qasper/{n}", {"task": "qasper"}) for n in range(12)]
    recipes = Grid(("infinipot", "infinipot-paper", "truncate", "tova", "sirllm"), catalysts=("by-task",))
    level = {"infinipot": 1.0, "truncate": 0.0}

    def score(cell: Any, *_: Any) -> float:
        return level.get(cell.recipe.preset.name, 0.5)

    kept_run(tmp_path / "longbench", "longbench", recipes, asked, score)
    keys = Grid(("infinipot", "ccd"), catalysts=("question",))
    there = tmp_path / "passkey"
    kept_run(there, "passkey", keys, [("a", {"length": 4096, "depth": 0.5})], lambda *_: 1.0)
    told = beside.page(tmp_path).partition("## Table 2")[0]
    assert told.count("| ours, by rows | | less ours as printed | |") == 2
    assert "| TOVA-4K | 36.26 | 50.0 | -5.24 | -50.0 (-50.0 to -50.0) | agrees | +0.0 (" in told
    twice = "-100.0 (-100.0 to -65.7) | agrees | -50.0 (-50.0 to -50.0) | agrees |"
    assert f"| TR-4K | 37.20 | 0.0 | -4.30 | {twice}" in told
    assert "| InfiniPot-4K | 41.50 | 100.0 |  |  |  | +50.0 (50.0 to 50.0) |  |" in told


def test_means_that_stand_side_by_side_are_of_the_rows_that_all_have(tmp_path: Path) -> None:
    asked = [(f"qasper/{n}", {"task": "qasper"}) for n in range(4)]
    both = Grid(("infinipot", "full"), catalysts=("by-task",))
    kept_run(tmp_path, "longbench", both, asked, lambda cell, name, facts: float(name.endswith("3")))
    rows = [row for row in read_rows(tmp_path) if (row["cell"], row["example"]) != ("full", "qasper/3")]
    (tmp_path / "rows.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    (section,) = sections(load([tmp_path])[0])
    found = common({one.name: one for one in section.series})
    assert [one.scores() for one in found.values()] == [[0.0] * 3] * 2
    assert common({}) == {}


def test_a_folder_beside_the_grids_is_another_model_s(tmp_path: Path) -> None:
    model = {"file": "GGUF", "dtype": "bfloat16", "weights": "sample:a", "device": "cpu", "format": "plain"}
    asked = [(f"qasper/{n}", {"task": "qasper"}) for n in range(12)]
    recipes = Grid(("infinipot", "truncate"), catalysts=("by-task",))
    for folder, name in (("half", "big"), ("half-new", "new"), ("grids-old", "old")):
        kept: Any = {"model": {**model, "name": name}, "options": {"part": "report"}}
        there = tmp_path / folder / "longbench"
        kept_run(there, "longbench", recipes, asked, lambda cell, name, facts: 0.5, **kept)
    keys = Grid(("infinipot",), catalysts=("question",))
    there = tmp_path / "half" / "passkey"
    kept_run(there, "passkey", keys, [("a", {"length": 4096, "depth": 0.5})], lambda *_: 1.0)
    page = beside.page(tmp_path / "half")
    assert "| ours, `new`, 4K, by rows |" in page
    assert page.count("`new`, a file of GGUF") == 1
    assert "half `report` (qasper 12)" in page.partition("`new`, a file of")[2]
    assert "`old`" not in page


def test_another_model_s_tables_keep_the_question_known_and_unknown_apart(tmp_path: Path) -> None:
    def score(cell: Any, name: str, facts: dict[str, Any]) -> float:
        return float(cell.catalyst in ("by-task", "question") or facts.get("length") == 4096)

    recipes, model = (
        ("infinipot", "truncate", "snapkv"),
        {"name": "toy", "file": "GGUF Q4_1", "dtype": "bfloat16"},
    )
    keys = [(f"{k}-{n}", {"length": k, "depth": n / 10}) for k in (4096, 8192) for n in range(6)]
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
    less = "6 of 12 (6/6, 0/6) | **-50.0 (-74.6 to -15.4)** |"
    assert f"| truncated to the pot | 0.0 (0.0 to 24.2) | **-100.0 (-100.0 to -65.7)** | {less}" in with_it
    assert "| InfiniPot | 0.0 (0.0 to 24.2) |  | 6 of 12 (6/6, 0/6) |  |" in without
    assert "SnapKV" in with_it
    assert "SnapKV" not in without
    assert list(other_models([])) == []
