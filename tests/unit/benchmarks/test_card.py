"""The script for a borrowed card: its parts run one by one, and one that fails stops no other."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

import card


def test_parts_that_fail_stop_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    told = ["--parts", "decode-int4,read", "--device", "cpu", "--shape", "tiny", "--length", "1500"]
    monkeypatch.setattr(sys, "argv", ["card.py", *told, "--out", str(tmp_path)])
    assert card.main() == 0
    found = json.loads((tmp_path / "all.json").read_text())
    assert "are for CUDA cards" in found["decode-int4"]["failed"]
    assert found["read"]["failed"] == ""
    assert found["read"]["first_token_s"] > 0
    assert "first_token_s" in capsys.readouterr().out


def test_a_part_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["card.py", "--parts", "everything"])
    with pytest.raises(SystemExit, match="no part everything"):
        card.main()


def test_the_parts_are_listed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["card.py", "--list"])
    assert card.main() == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in card.PARTS)
