"""`make figures`: every number of the documentation is that of the raw files, and a wrong one is told."""

from __future__ import annotations

from pathlib import Path

import pytest

import figures
from claims.page import Page

PAGE = """# Speed 3.5

Reading took **3.77** s, 3.16 x
sooner than theirs; `--pot 4.5` and a pot of 4,096.

| | keys |
|---|---|
| ours | 39 of 60 |
"""


@pytest.fixture
def checker(tmp_path: Path) -> figures.Checker:
    (tmp_path / "docs" / "adr").mkdir(parents=True)
    (tmp_path / "README.md").write_text(PAGE)
    return figures.Checker(tmp_path)


def test_the_documentation_prints_what_the_raw_files_say() -> None:
    checker = figures.check()
    assert checker.problems == []
    assert checker.uncovered() == []
    assert checker.checked > 700


def test_a_phrase_is_found_whatever_its_line_ends_and_bold_marks(checker: figures.Checker) -> None:
    checker.says("README.md", "Reading took {:.2f} s, {:.2f} x sooner", 3.7715, 3.159)
    checker.says("README.md", "| ours | {} of {} |", 39, 60)
    assert checker.problems == []
    assert checker.uncovered() == []


def test_a_wrong_number_is_told_with_its_place_and_both_values(checker: figures.Checker) -> None:
    checker.says("README.md", "| ours | {} of {} |", 38, 60)
    (problem,) = checker.problems
    assert problem.startswith("README.md:8: printed 39, recomputed 38:")


def test_wrong_numbers_are_mended_once_whatever_phrases_say(checker: figures.Checker, tmp_path: Path) -> None:
    checker.says("README.md", "| ours | {} of {} |", 138, 60)
    checker.says("README.md", "ours | {} of", 138)
    checker.says("README.md", "| {} of 60", 7)  # another phrase disagrees
    figures.mend(checker, tmp_path)
    mended = PAGE.replace("39 of 60", "{} of 60")
    assert (tmp_path / "README.md").read_text() in (mended.format(138), mended.format(7))


def test_a_half_may_be_rounded_either_way(checker: figures.Checker) -> None:
    checker.says("README.md", "Reading took {:.2f} s", 3.765)
    assert checker.problems == []


def test_what_the_page_does_not_say_and_what_does_not_hold_is_told(checker: figures.Checker) -> None:
    checker.says("README.md", "{} of 61", 39)
    checker.says("README.md", "sooner than theirs", holds=False)
    assert [problem.partition(": ")[2][:30] for problem in checker.problems] == [
        "nowhere says: '{} of 61' with ",
        "the raw files do not say so: '",
    ]


def test_a_measured_number_that_nothing_accounts_for_is_told(checker: figures.Checker) -> None:
    checker.says("README.md", "| ours | {} of {} |", 39, 60)
    assert [line.partition(" has")[0] for line in checker.uncovered()] == [
        "README.md:3: 3.77",
        "README.md:3: 3.16",
    ]
    checker.excuse("README.md", "3.16 x sooner")
    assert [line.partition(" has")[0] for line in checker.uncovered()] == ["README.md:3: 3.77"]


def test_an_excuse_for_what_is_no_longer_there_is_told(checker: figures.Checker) -> None:
    checker.excuse("README.md", "5.5 x slower")
    assert "no longer says" in checker.problems[0]


def test_code_headings_and_sizes_are_no_figures(tmp_path: Path) -> None:
    (tmp_path / "page.md").write_text(
        "# 3.5 s\n\n```\n2.5 s\n```\nADR 3.5, `1.5 s`, [x](a-2.5.json), 8K, 2,048 rows\n"
    )
    assert list(Page(tmp_path / "page.md", "page").figures()) == []
