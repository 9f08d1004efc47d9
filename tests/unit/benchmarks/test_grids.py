"""The grids of the paper's tables: every part can run, none is there twice, and several models stay apart."""

from __future__ import annotations

import argparse
import tarfile
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

import costs
import grids
import plans
import toy_eval as toy
from candidates import Candidate
from infinipot.eval.evaluate import Evaluation
from infinipot.eval.folder import opened, read_rows
from infinipot.eval.grid import BY_TASK
from infinipot.eval.runner import Runner
from infinipot.policies.registry import registry

EVERY = list(plans.paper())


@pytest.fixture(autouse=True)
def _known(monkeypatch: pytest.MonkeyPatch) -> None:
    """The recipe `candidate`, for one test."""
    monkeypatch.setitem(registry(), "candidate", Candidate)


def cells(grid: str) -> set[str]:
    return {cell.name for part in EVERY if part.grid == grid for cell in part.cells.cells("chat")}


def test_every_part_makes_cells_and_has_a_place_of_its_own() -> None:
    folders = {name: Path(name) for name in ("essays", "longbench", "facts", "books")}
    args = argparse.Namespace(**folders)
    assert {part.grid for plan in plans.PLANS.values() for part in plan()} == set(plans.tasks(args))
    for plan in plans.PLANS.values():
        assert all(part.cells.cells("chat") for part in plan())
        places = [(part.place, part.name) for part in plan()]
        assert len(set(places)) == len(places)


def test_rivals_are_there_at_their_fair_settings() -> None:
    found = cells("longbench")
    assert {"infinipot-paper 4096 by-task", "tova 4096", "sirllm 4096"} <= found
    assert {f"infinipot 4096 {catalyst}" for catalyst in (BY_TASK, "general")} <= found
    steps = (
        "h2o 4096 step=256",
        "h2o-half 4096 step=256",
        "swa 4096 step=256",
        "streaming-llm 4096 step=256",
    )
    tokenwise = ("streaming-llm 4096", "tova-tokenwise 4096")
    assert {f"{name} tail=fill" for name in (*steps, *tokenwise)} <= found


def test_defaults_are_chosen_by_one_change_at_a_time() -> None:
    found = [cell for part in plans.defaults() for cell in part.cells.cells("chat")]
    usual = next(cell.describe() for cell in found if cell.name == "infinipot 4096 by-task")
    for cell in found:
        if cell.catalyst == BY_TASK and cell.recipe.preset.name == "infinipot":
            assert sum(value != usual[name] for name, value in cell.describe().items()) <= 1


def test_further_models_read_with_the_question_known_and_unknown() -> None:
    for grid, known in (("longbench", BY_TASK), ("essays-short", "question"), ("passkey-short", "question")):
        found = [cell for part in plans.models() if part.grid == grid for cell in part.cells.cells("plain")]
        assert {cell.recipe.preset.name for cell in found} == {*plans.FURTHER}
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


def test_rows_are_gathered_packed_and_gone_on_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two parts of the same cell in one worker, the whole after its first rows."""
    monkeypatch.setattr(grids, "open_engine", lambda *_, **__: toy.engine())
    parts = [plans.Part("longbench", "infinipot", capacity=256, rows=count) for count in (1, None)]
    monkeypatch.setattr(grids, "chosen", lambda _: parts)
    monkeypatch.setattr(
        plans.Part,
        "evaluation",
        lambda part, args: Evaluation(toy.Letters(), part.cells, args.out / "parts" / part.grid / part.name),
    )
    words = [
        "--longbench",
        ".",
        "--essays",
        ".",
        "--models",
        "toy",
        "--pack",
        str(tmp_path / "back/rows.tar.xz"),
    ]
    monkeypatch.setattr(grids, "workers", lambda args, until: grids.worker(args, Turn(), until))
    begun = grids.Progress(tmp_path / "out/toy")
    grids.main([*words, "--out", str(tmp_path / "out")])
    assert begun.told(1).rows == 6
    assert "longbench: 6 rows of infinipot_by-task_256" in capsys.readouterr().out
    rows = read_rows(tmp_path / "out/toy/longbench")
    assert len({row["example"] for row in rows}) == len(rows) == 6
    with tarfile.open(tmp_path / "back/rows.tar.xz") as packed:
        assert packed.getnames() == ["toy/longbench/manifest.json", "toy/longbench/rows.jsonl"]
        packed.extractall(tmp_path / "again", filter="data")
    monkeypatch.setattr(Runner, "several", lambda *_: pytest.fail("all rows are there"))
    grids.main([*words, "--out", str(tmp_path / "again")])
    assert grids.Progress(tmp_path / "again/toy").told(1).rows == 0  # they are an earlier run's
    assert "6 rows, 0 new" in capsys.readouterr().out


def test_shares_of_a_cell_are_gathered_as_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grids, "open_engine", lambda *_, **__: toy.engine())
    parts = list(plans.Part("longbench", "infinipot", capacity=256).shares(2))
    monkeypatch.setattr(grids, "chosen", lambda _: parts)
    monkeypatch.setattr(
        plans.Part,
        "evaluation",
        lambda part, args: Evaluation(toy.Letters(), part.cells, args.out / "parts" / part.grid / part.name),
    )
    monkeypatch.setattr(grids, "workers", lambda args, until: grids.worker(args, Turn(), until))
    grids.main(["--longbench", ".", "--essays", ".", "--models", "toy", "--out", str(tmp_path)])
    each = [len(read_rows(tmp_path / "toy/parts/longbench" / part.name)) for part in parts]
    assert each == [3, 3]
    assert len(read_rows(tmp_path / "toy/longbench")) == 6


def test_an_estimate_takes_off_what_is_there_and_what_cells_have_in_common(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--longbench", ".", "--essays", ".", "--models", "smollm2", "--grids", "passkey-more"]
    recipes = ("infinipot", "infinipot-paper", "full")
    parts = [plans.Part("passkey-more", one, "general", 8192) for one in recipes]
    args = grids.options().parse_args([*words, "--out", str(tmp_path)])
    args.model, args.out = "smollm2", tmp_path / "smollm2"
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(costs, "chosen", lambda _: parts)
        (first, rows, tokens), second, third = costs.estimated(args)
        grid = plans.Part.evaluation(first, args)
        cell = first.cells.cells("plain")[0]
        with opened(args.out / "passkey-more", {"format": 1, "cells": {}}) as folder:
            for example in list(grid.task.examples(costs.count))[12:]:
                folder.append({"kind": "example", "cell": cell.name, "example": example.id})
        left = [rows for _, rows, _ in costs.estimated(args)]
    assert (rows, second[1], third[1]) == (60, 48, 48)  # those of 4K fit, whoever reads them
    assert left == [12, 48, 48]
    assert tokens > third[2] > 1_000_000
    grids.main([*words, "--plan", "paper", "--out", str(tmp_path), "--estimate"])
    assert "smollm2, passkey-more" in capsys.readouterr().out


class Turn:
    """A number that one process counts up."""

    def __init__(self) -> None:
        self.value = 0

    def get_lock(self) -> Any:
        return nullcontext()
