"""The paper's tables beside ours: differences are judged by their interval, levels never."""

from __future__ import annotations

from pathlib import Path

import beside
from infinipot.eval.estimates import Estimate
from paper.beside import PAPER, verdict


def test_a_difference_agrees_contradicts_or_is_not_told_apart() -> None:
    assert verdict(-4.3, Estimate(-0.05, -0.08, -0.01, 60)) == "agrees"
    assert verdict(-4.3, Estimate(0.05, 0.01, 0.08, 60)) == "contradicts"
    assert verdict(-4.3, Estimate(0.01, -0.02, 0.04, 60)) == "not told apart"
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
