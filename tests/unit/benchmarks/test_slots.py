"""Candidates for how a pot spends its slots: the default without settings, and every setting counts."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import slots
from candidates import Candidate
from infinipot.core.evidence import Evidence
from infinipot.engine import Engine
from infinipot.policies.infinipot import InfiniPot
from infinipot.policies.registry import registry
from infinipot.testing.model import ToyModel
from infinipot.testing.tokenizer import ByteTokenizer


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    """The recipe `candidate`, for one test."""
    monkeypatch.setitem(registry(), "candidate", Candidate)


def seen() -> Evidence:
    chance = torch.Generator().manual_seed(0)
    novelty, catalyst = torch.rand(2, 1, 2, 64, generator=chance)
    return Evidence(0, torch.arange(64).expand(1, 2, 64), 9 * novelty, catalyst, opening=2, recent=4)


def kept(policy: Candidate | InfiniPot) -> list[int]:
    score = policy.score(seen(), 24)[0, 0]
    return sorted(score.topk(16).indices.tolist())


def test_without_settings_a_candidate_is_the_default() -> None:
    assert torch.equal(Candidate().score(seen(), 24), InfiniPot().score(seen(), 24))


@pytest.mark.parametrize("told", [one for one in slots.CANDIDATES.values() if set(one) - {"catalyst"}])
def test_every_setting_changes_what_is_kept(told: dict[str, object]) -> None:
    made = Candidate(**{name: value for name, value in told.items() if name != "catalyst"})  # type: ignore[arg-type]
    assert kept(made) != kept(Candidate())


@pytest.mark.usefixtures("known")
def test_every_candidate_is_a_cell_of_its_own() -> None:
    names = [cell.name for cell in slots.Cells(list(slots.CANDIDATES), 512).cells()]
    assert len(set(names)) == len(slots.CANDIDATES)


@pytest.mark.usefixtures("known")
def test_a_table_of_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = f"--data {tmp_path} --part tune --only pooled --capacity 256 --depths 0.5 --lengths 600 --trials 6"
    args = slots.options().parse_args([*told.split(), "--out", str(tmp_path / "out")])
    (tmp_path / "essays").mkdir()
    (tmp_path / "essays" / "a.txt").write_text("The sea was calm and nobody spoke of the keeper. " * 200)
    slots.run("essays", Engine("toy", "plain", ToyModel(), ByteTokenizer()), args, float("inf"))
    said = capsys.readouterr().out
    assert "default" in said
    assert "pooled" in said
