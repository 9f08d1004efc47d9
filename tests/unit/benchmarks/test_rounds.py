"""Measurements in turns: workers with the sources of a checkout, and what their ratios spread over."""

from __future__ import annotations

from pathlib import Path

import pytest

import compare
from rounds import Worker, closing, ratios, spread, turned

SCRIPT = """
import json, sys, infinipot
print("a library prints this")
print(json.dumps({"worker": True, "source": infinipot.__file__, "words": sys.argv[1:]}), flush=True)
for line in sys.stdin:
    print(json.dumps({"worker": True, "twice": 2 * json.loads(line)["number"]}), flush=True)
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    (tmp_path / "script.py").write_text(SCRIPT)
    return tmp_path / "script.py"


def checkout(folder: Path) -> Path:
    (folder / "src" / "infinipot").mkdir(parents=True)
    (folder / "src" / "infinipot" / "__init__.py").write_text("")
    return folder


def test_a_worker_runs_with_the_sources_of_its_checkout(script: Path, tmp_path: Path) -> None:
    workers = {name: Worker(script, checkout(tmp_path / name), ["x"]) for name in ("one", "other")}
    with closing(workers):
        for name, worker in workers.items():
            assert Path(worker.ready["source"]).is_relative_to(tmp_path / name)
            assert worker.ready["words"] == ["x"]
            assert worker.ask(number=21)["twice"] == 42


def test_a_worker_that_ends_ends_the_run(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text("raise SystemExit(3)")
    with pytest.raises(SystemExit, match="code 3"):
        Worker(tmp_path / "script.py", checkout(tmp_path / "one"), [])


def test_other_sources_than_the_checkout_s_are_refused(
    script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compare, "SCRIPT", script)
    (tmp_path / "empty").mkdir()
    with pytest.raises(SystemExit, match=r"another one hides it|code 1"):
        compare.started(tmp_path / "empty", [])


def test_nobody_is_always_first() -> None:
    assert [turned(["a", "b", "c"], number)[0] for number in range(-1, 3)] == ["c", "a", "b", "c"]


def test_ratios_are_taken_within_a_round() -> None:
    rounds = [{"a": {"s": 2.0}, "b": {"s": 1.0}}, {"a": {"s": 9.0}, "b": {"s": 3.0}}]
    assert ratios(rounds, "a", "b", "s") == {"least": 2.0, "median": 2.5, "most": 3.0}
    assert spread([1.0]) == {"least": 1.0, "median": 1.0, "most": 1.0}


def test_the_summary_has_both_sides_and_their_ratio() -> None:
    row = {"tokens_s": 10.0, "decode_ms": 5.0, "first_token_s": 1.0}
    rounds = [{"before": row, "after": {**row, "tokens_s": 11.0}}] * 3
    found = compare.summary(rounds)
    assert found["tokens_s"]["after_over_before"]["median"] == 1.1
    assert found["decode_ms"] == {
        "before": 5.0,
        "after": 5.0,
        "after_over_before": {"least": 1.0, "median": 1.0, "most": 1.0},
    }
