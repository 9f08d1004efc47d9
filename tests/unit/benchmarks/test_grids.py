"""The grids of the paper's tables: every part can run, none is there twice, and several models stay apart."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import pytest

import grids
from infinipot.eval.grid import BY_TASK

EVERY = list(grids.parts())


def cells(grid: str) -> set[str]:
    return {cell.name for part in EVERY if part.grid == grid for cell in part.cells.cells("chat")}


def test_every_part_makes_cells_and_has_a_place_of_its_own() -> None:
    args = argparse.Namespace(essays=Path("essays"), longbench=Path("longbench"), rows=None)
    assert {part.grid for plan in grids.PLANS.values() for part in plan()} == set(grids.tasks(args))
    for plan in grids.PLANS.values():
        assert all(part.cells.cells("chat") for part in plan())
        places = [(part.grid, part.name) for part in plan()]
        assert len(set(places)) == len(places)


def test_rivals_are_there_at_their_fair_settings() -> None:
    found = cells("longbench")
    assert {"infinipot-paper 4096 by-task", "h2o-half 4096 step=256", "tova 4096", "sirllm 4096"} <= found
    assert {f"infinipot 4096 {catalyst}" for catalyst in (BY_TASK, "general")} <= found
    assert {"streaming-llm 4096", "tova-tokenwise 4096", "streaming-llm 4096 step=256"} <= cells(
        "longbench-tokenwise"
    )


def test_further_models_read_with_the_question_known_and_unknown() -> None:
    for grid, known in (("longbench", BY_TASK), ("essays-short", "question"), ("passkey-short", "question")):
        found = [cell for part in grids.models() if part.grid == grid for cell in part.cells.cells("plain")]
        assert {cell.recipe.preset.name for cell in found} == {*grids.FURTHER}
        assert {cell.catalyst for cell in found} == {known, "general", ""}


def test_models_follow_one_another_in_folders_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ran: list[tuple[str, Path]] = []
    monkeypatch.setattr(grids, "workers", lambda args, until: ran.append((args.model, args.out)))
    words: list[Any] = [
        "--models",
        "one-1.5b,two.gguf",
        "--longbench",
        tmp_path,
        "--essays",
        tmp_path,
        "--out",
        tmp_path,
    ]
    grids.main([*map(str, words), "--grids", "passkey", "--minutes", "1"])
    assert ran == [("one-1.5b", tmp_path / "one-1.5b"), ("two.gguf", tmp_path / "two")]
    told = capsys.readouterr().out
    count = sum(part.grid == "passkey" for part in EVERY)
    assert f"one-1.5b: 0 of {count} parts begun or done" in told
