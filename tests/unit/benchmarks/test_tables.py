"""Tables of docs/results.md: what was run is there, with its interval; what was not is left out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import grids
import put_away
import tables
from candidates import Candidate
from infinipot.eval import manifest
from infinipot.eval.folder import read_manifest, read_rows
from infinipot.eval.grid import Grid
from infinipot.eval.tasks.task import half
from infinipot.policies.registry import registry
from slots import FACTS
from toy_eval import kept_run

TEXTS = [(f"{task}/{n}", {"task": task}) for task in ("qasper", "qasper_e") for n in range(8)]
KEYS = [(f"{length}-{n}", {"length": length, "depth": n / 10}) for length in (4096, 8192) for n in range(6)]


def score(cell: Any, name: str, facts: dict[str, Any]) -> float:
    return 1.0 if cell.recipe.preset.name == "infinipot" else float(name.endswith("0"))


def kept(folder: Path) -> Path:
    half: dict[str, Any] = {"options": {"part": "report"}}
    recipes = Grid(("infinipot", "truncate"), catalysts=("by-task", "general"))
    kept_run(folder / "report-half/longbench", "longbench", recipes, TEXTS, score, **half)
    asked = Grid(("infinipot", "ccd"), catalysts=("question", "general"))
    kept_run(folder / "report-half/essays-more", "needle", asked, KEYS, score, **half)
    tune: dict[str, Any] = {"options": {"part": "tune"}}
    changed = Grid(
        ("infinipot", "infinipot-paper"), catalysts=("by-task",), options={"tail": ("fill", "raw")}
    )
    kept_run(folder / "defaults-toy" / "longbench", "longbench", changed, TEXTS, score, **tune)
    return folder


def test_every_place_gets_its_table_and_the_rest_stays(tmp_path: Path) -> None:
    page = "Before\n<!-- keys -->old<!-- end of keys -->\nbetween\n"
    page += "<!-- longbench -->\n<!-- end of longbench -->\n"
    told = tables.filled(page + "<!-- defaults --><!-- end of defaults -->after", kept(tmp_path))
    assert told.startswith(
        "Before\n<!-- keys -->\n\n| keys found, and less InfiniPot by rows | essays, 4K to 64K |"
    )
    assert "| InfiniPot, question known | 12 of 12 |" in told
    assert "`ccd`), which ask no question | 2 of 12, **-83.3 (-95.3 to -46.2)** |" in told
    assert "between\n<!-- longbench -->\n\n16 rows of the half `report`, 1 tasks (qasper 16;" in told
    row = "| truncated to the pot | 16 | 12.5 (3.5 to 36.0) | 12.5, **-87.5 (-100.0 to -68.8)** |"
    assert f"{row} **-87.5 (-96.5 to -57.0)** |" in told  # by tasks a bootstrap, by rows Newcombe's
    sides = "by all rows: none. Below: truncated to the pot. Not told apart: none."
    last = "Above without tasks of under ten rows: none."
    assert f"More than chance above InfiniPot, {sides} {last}" in told
    assert "| `toy`, less the defaults | longbench, question known |" in told
    assert "| the last chunk left as it is | +0.0 (-19.4 to 19.4) |  |" in told
    assert "| as printed (not pooled, last chunk left) | **-87.5" in told
    assert told.endswith("<!-- end of defaults -->after")
    assert tables.filled(told, tmp_path) == told


def test_cells_that_are_mostly_copies_are_left_out_and_rows_of_a_choice_counted_apart(tmp_path: Path) -> None:
    half: dict[str, Any] = {"options": {"part": "report"}}
    some = Grid(("infinipot", "truncate", "full", "snapkv"), catalysts=("by-task",))
    there, place = tmp_path / "report-half/longbench", {name: n for n, (name, _) in enumerate(TEXTS)}
    kept_run(there, "longbench", some, TEXTS, score, **half)
    before = Grid(("infinipot",), catalysts=("by-task",))
    kept_run(tmp_path / "grids/longbench", "longbench", before, TEXTS[:4], score)
    first_rows = {
        "full": range(15),
        "snapkv 4096": range(10),
        "ccd 4096": range(10),
    }  # the others are missing
    kept_run(there, "longbench", Grid(("ccd",)), TEXTS, score, **half)
    rows = [
        row for row in read_rows(there) if place[row["example"]] in first_rows.get(row["cell"], range(16))
    ]
    for row in rows:
        if row["cell"] == "full" and place[row["example"]] > 3:
            row["same_as"] = "truncate 4096"
        if row["cell"] == "ccd 4096":  # copies all, but it has the rows of one that computed its own
            row["same_as"] = "snapkv 4096"
    (there / "rows.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    told = tables.filled("<!-- longbench --><!-- end of longbench -->", tmp_path)
    assert "4 are among the rows that defaults were chosen on; 12 are new. Left out, cut" in told
    assert "off early: `full`.\n" in told
    assert "whole cache" not in told
    assert "| CCD alone (no catalyst, no novelty) | 10 |" in told
    assert (
        "| SnapKV (holds the whole prompt first) | 10 | 20.0 (5.7 to 51.0); InfiniPot there 100.0 |" in told
    )
    assert "**, 12 rows |" in told.partition("| truncated to the pot | 16 |")[2]
    assert "questions unknown" not in told


def test_rows_of_question_answering_are_told_apart_where_questions_are_known(tmp_path: Path) -> None:
    both = [*TEXTS, *((f"gov_report/{n}", {"task": "gov_report"}) for n in range(12))]
    some = Grid(("infinipot", "truncate"), catalysts=("by-task", "general"))

    def lost(cell: Any, name: str, facts: dict[str, Any]) -> float:
        return float(cell.recipe.preset.name == "infinipot" or facts["task"] == "gov_report")

    kept_run(tmp_path / "report-half/longbench", "longbench", some, both, lost, options={"part": "report"})
    told = tables.filled("<!-- longbench --><!-- end of longbench -->", tmp_path)
    words = (
        "16 are of question-answering (QA) tasks; the others are read with the general prompt in any case."
    )
    assert words in told
    known, unknown = (told.partition(f"| questions {one}")[2] for one in ("known", "unknown"))
    assert known.startswith(" in QA tasks |")
    assert "| on rows of QA tasks |" in known.splitlines()[0]
    assert "| **-57.1 (" in known
    assert "| **-100.0 (-100.0 to -72.6)**, 16 rows |" in known
    assert "QA tasks" not in unknown.splitlines()[0]


def test_differences_are_told_without_the_tasks_of_few_rows_too(tmp_path: Path) -> None:
    few = [*TEXTS, *((f"musique/{n}", {"task": "musique"}) for n in range(3))]
    some = Grid(("infinipot", "truncate"), catalysts=("by-task",))

    def lost(cell: Any, name: str, facts: dict[str, Any]) -> float:
        return float(cell.recipe.preset.name == "infinipot" or facts["task"] != "musique")

    there, half = tmp_path / "report-half/longbench", {"options": {"part": "report"}}
    kept_run(there, "longbench", some, few, lost, **half)
    told = tables.filled("<!-- longbench --><!-- end of longbench -->", tmp_path)
    assert "| less InfiniPot, by rows | without tasks of under ten rows |" in told
    assert "on rows of QA tasks" not in told
    assert "| truncated to the pot | 19 | 84.2" in told
    assert "| +0.0 (-19.4 to 19.4), 16 rows |" in told.partition("| truncated to the pot | 19 |")[2]


def test_a_cell_with_errors_has_no_mean_over_tasks(tmp_path: Path) -> None:
    def failed(cell: Any, name: str, facts: dict[str, Any]) -> float | None:
        return None if cell.recipe.preset.name == "truncate" and name == "qasper/0" else 1.0

    grid, half = Grid(("infinipot", "truncate"), catalysts=("by-task",)), {"options": {"part": "report"}}
    kept_run(tmp_path / "report-half/longbench", "longbench", grid, TEXTS, failed, **half)
    told = tables.filled("<!-- longbench --><!-- end of longbench -->", tmp_path)
    assert "| truncated to the pot | 15 | 100.0 (79.6 to 100.0); InfiniPot there 100.0 |  |" in told


def test_candidates_for_slots_stand_beside_the_default_half_by_half(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(registry(), "candidate", Candidate)
    pooled: dict[str, Any] = {"pool": (15,), "novelty_pool": (15,)}
    keys = [(f"4096-{n}", {"length": 4096, "depth": n // 2 / 20}) for n in range(40)]
    for grid in (
        Grid(("infinipot",), catalysts=("general",), options={"units": ("slots", "sentences")}),
        Grid(("candidate",), (4096,), (FACTS,), pooled),
    ):
        kept_run(tmp_path / "report-half/essays-more", "needle", grid, keys, score)
    told = tables.filled("<!-- slots --><!-- end of slots -->", tmp_path)
    tune = sum(half(name) == "tune" for name, _ in keys)
    assert "| question unknown | keys in essays, `tune` | keys in essays, `report` |" in told
    assert f"| slot by slot, the default before | {tune} of {tune} | {40 - tune} of {40 - tune} |" in told
    right = [sum(half(name) == part for name, _ in keys if name.endswith("0")) for part in ("tune", "report")]
    assert f"asks for facts | {right[0]} of {tune}, **-" in told
    assert f"| {right[1]} of {40 - tune}, **-" in told
    assert "two catalysts" not in told
    assert tables.filled(told, tmp_path / "nothing") == "<!-- slots -->\n\n\n\n<!-- end of slots -->"


def test_every_candidate_is_compared_with_the_single_slots_of_its_own_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(registry(), "candidate", Candidate)
    keys = [(f"4096-{n}", {"length": 4096, "depth": n / 20}) for n in range(20)]
    ways = Grid(("candidate",), (4096,), ("general",), {"join": ("split", "frozen")})

    def frozen_finds(cell: Any, name: str, facts: dict[str, Any]) -> float:
        return float("frozen" in cell.name or name.endswith("0"))

    def always(cell: Any, name: str, facts: dict[str, Any]) -> float:
        return 1.0

    once = Grid(("candidate",), (4096,), ("general",))
    for part in ("tune", "report"):
        kept_run(tmp_path / f"slots/ways-essays-{part}", "needle", ways, keys, frozen_finds)
        kept_run(tmp_path / f"slots/maximum-essays-{part}", "needle", once, keys, always)
    told = tables.filled("<!-- tried --><!-- end of tried -->", tmp_path)
    assert "| less single slots, by rows | keys of 60 | keys in essays, `tune` |" in told
    assert "| scores frozen at birth | 40 | **+90.0 (64.2 to 97.2)**, 20 |" in told
    assert "| maximum over query heads | 40 | **+90.0 (64.2 to 97.2)**, 20 |" in told  # less those of `ways`
    assert "budgets" not in told
    assert tables.filled(told, tmp_path / "nothing") == "<!-- tried -->\n\n\n\n<!-- end of tried -->"


def test_a_page_without_places_is_left_alone(tmp_path: Path) -> None:
    assert tables.filled("nothing is made here", tmp_path) == "nothing is made here"


def test_packed_rows_are_put_where_the_tables_look_for_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    usual = Grid(("infinipot",), catalysts=("by-task",))
    half: dict[str, Any] = {"options": {"part": "report"}}
    for model, grid in (("qwen", "longbench"), ("qwen", "longbench-tune"), ("tiny", "essays-short")):
        kept_run(tmp_path / "out" / model / grid, "toy", usual, TEXTS, score, **half)
    grids.pack(tmp_path / "out", tmp_path / "rows.tar.xz")
    put_away.main([str(tmp_path / "rows.tar.xz"), "--main", "qwen", "--results", str(tmp_path / "docs")])
    assert str(put_away.place("qwen/longbench/rows.jsonl", "qwen", "half")) == "half/longbench/rows.jsonl.xz"
    assert "grids/longbench: 16 rows" in capsys.readouterr().out
    for folder, name in (("qwen/longbench", "grids"), ("qwen/longbench-tune", "defaults-qwen")):
        there = tmp_path / "docs" / name / "longbench"
        assert read_rows(there) == read_rows(tmp_path / "out" / folder)
        assert read_manifest(there) == read_manifest(tmp_path / "out" / folder)
    twice = read_manifest(there)
    twice["sessions"] *= 2
    assert json.loads(put_away.once(twice)) == read_manifest(there)
    assert len(read_rows(tmp_path / "docs/grids-tiny/essays-short")) == 16


def test_rows_that_were_put_away_are_taken_back_to_be_gone_on_with(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What does nothing in a cell has today's default, or the run would be refused; other versions stay."""
    usual, half = Grid(("infinipot",), catalysts=("by-task",)), {"options": {"part": "report"}}
    grids_of = {"half/longbench": "qwen/longbench", "half-tiny/essays": "tiny/essays"}
    places = {**grids_of, "defaults-qwen/longbench": "qwen/longbench-tune", "other/longbench": ""}
    told: dict[str, Any] = {**half, "versions": manifest.versions()}
    for folder in places:
        kept_run(tmp_path / "docs" / folder, "toy", usual, TEXTS, score, **told)
    kept_run(tmp_path / "docs/half/old", "toy", usual, TEXTS, score, **half, versions={"torch": "1"})
    for path in (tmp_path / "docs").glob("*/*/manifest.json"):
        path.write_text(path.read_text("utf-8").replace('"meaning": 48', '"meaning": 24'), "utf-8")
    words = ["--back", str(tmp_path / "out"), "--folder", "half", "--main", "qwen"]
    put_away.main([*words, "--results", str(tmp_path / "docs")])
    said = capsys.readouterr().out
    assert "qwen/old: left out, made with {'torch': '1'}" in said
    assert "qwen/longbench-tune: 16 rows" in said
    there = {str(path.parent.relative_to(tmp_path / "out")) for path in tmp_path.glob("out/*/*/rows.jsonl")}
    assert there == set(filter(None, places.values()))
    (cell,) = usual.cells()
    for folder, place in places.items():
        if place:
            found = read_manifest(tmp_path / "out" / place)
            assert not manifest.differences({**found, "cells": {cell.name: cell.describe()}}, found)
            assert read_rows(tmp_path / "out" / place) == read_rows(tmp_path / "docs" / folder)
