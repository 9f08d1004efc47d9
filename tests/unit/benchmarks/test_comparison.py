"""`benchmarks/bench.py` on a tiny random model: beside peers, the parts of a cycle, how peers fail."""

from __future__ import annotations

import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
import torch

import bench
from infinipot.bench.subject import Subject, open_subject
from infinipot.bench.systems import Measurement
from infinipot.errors import ConfigError
from infinipot.recipes.recipe import Recipe
from peers import worker
from speed import ceilings, figure7, tables
from speed.comparison import Comparison, peers_on, run
from speed.cycle_parts import cycle_parts, snapshot, steady, write


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ceilings of a moment."""
    monkeypatch.setattr(ceilings, "CPU", (128, 2**16, 0.01))
    monkeypatch.delenv("INFINIPOT_KVPRESS_PYTHON", raising=False)
    monkeypatch.delenv("INFINIPOT_GGUF", raising=False)


def plan(**more: Any) -> Comparison:
    named = {"random": "tiny", "lengths": (256,), "capacities": (96,), "new_tokens": 10, "device": "cpu"}
    return Comparison(**{**named, "rounds": 3, "threads": 1, **more})


@pytest.fixture
def subject() -> Subject:
    return open_subject(plan())


def end(work: Generator[Any, None, Any]) -> Any:
    """What a run returns."""
    while True:
        try:
            next(work)
        except StopIteration as done:
            return done.value


def test_the_parts_of_a_cycle_add_up(subject: Subject) -> None:
    reader = subject.reader(Recipe.named(capacity=96))
    parts = end(cycle_parts(reader, subject.text(96), 3))
    told = parts.describe()
    assert len(told["rounds_ms"]) == 3
    assert told["text_tokens"] + told["catalyst_tokens"] == 96 - 48
    shares = told["distillation_share"] + told["novelty_share"] + told["forward_share"]
    assert shares == pytest.approx(1, abs=1e-4)
    assert reader.pot.fill == 0


def test_a_steady_cycle_begins_with_what_is_kept_and_can_be_had_again(subject: Subject) -> None:
    reader = subject.reader(Recipe.named(capacity=96))
    ids = subject.text(96)
    again = steady(reader, ids)
    before = reader.pot.pot_layers[0].keys[:, :, :48].clone()
    write(reader, ids[:20], distil=True)
    again()
    assert reader.pot.fill == 48
    assert torch.equal(reader.pot.pot_layers[0].keys[:, :, :48], before)
    assert snapshot(reader) is not again


def test_side_by_side_with_plain_transformers() -> None:
    told = end(run(plan(lengths=(), chunk=(64, 32), peers=("transformers", "llama.cpp"))))["side_by_side"]
    assert told["chunk"] == "64 new on 32 cached"
    for part in ("reading", "decoding"):
        assert set(told[part]) == {"transformers", "infinipot"}
        pot, other = told[part]["infinipot"], told[part]["transformers"]
        ratios = sorted(b / a for a, b in zip(pot["seconds"], other["seconds"], strict=True))
        assert len(ratios) == 3
        assert pot["times_as_fast_as"]["transformers"] == pytest.approx(ratios[1], rel=0.02)
    assert told["failed"] == {"llama.cpp": "needs a GGUF file of the model: give --gguf FILE"}


def test_peers_that_are_not_there_say_so_and_all_is_drawn(tmp_path: Path) -> None:
    told = end(run(plan(peers=("transformers", "kvpress-snapkv", "llama.cpp"))))
    rows = {row["system"]: row for row in told["rows"]}
    assert rows["transformers"]["failed"] == ""
    assert rows["transformers"]["decode_ms"] > 0
    assert rows["infinipot"]["matmul_share"] > 0 < rows["infinipot"]["copy_share"]
    assert rows["kvpress-snapkv"]["failed"].startswith("not installed")
    assert rows["llama.cpp"]["failed"].startswith("needs a GGUF file")
    assert len({frozenset(row) for row in told["rows"]}) == 1, "the same columns"
    assert told["shares"][0]["system"] == "infinipot"
    assert "not installed" in "".join(str(part) for part in tables.tables(told))
    figure7.draw(told, tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"figure7.png", "figure7.svg"}


def test_the_picture_of_nothing_is_no_picture(tmp_path: Path) -> None:
    told = {"rows": [Measurement("kvpress-snapkv", False, 512, failed="not installed").describe()]}
    assert figure7.draw(told, tmp_path) == []


SCRIPTS = {
    "answers": """input(); print('loading\\n{"peer": 1, "x": 2}', flush=True); input()""",
    "fails": """input(); print('{"peer": 1, "failed": "out of memory"}', flush=True); input()""",
    "missing": "import nothing_of_that_name",
    "hangs": "import time; time.sleep(60)",
}


@pytest.mark.parametrize(
    ("script", "why"),
    [("fails", "out of memory"), ("missing", "not installed: .*nothing_of_that_name"), ("hangs", "stopped")],
)
def test_what_a_worker_says_when_it_cannot(
    script: str, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "it.py").write_text(SCRIPTS[script])
    monkeypatch.setattr(worker, "SCRIPTS", tmp_path)
    with worker.Worker(sys.executable, "it.py") as peer, pytest.raises(worker.PeerError, match=why):
        peer.ask({}, 0.3 if script == "hangs" else 20)


def test_a_worker_answers_between_other_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "it.py").write_text(SCRIPTS["answers"])
    monkeypatch.setattr(worker, "SCRIPTS", tmp_path)
    with worker.Worker(sys.executable, "it.py") as peer:
        assert peer.ask({"do": "it"}, 20)["x"] == 2


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["--peers", "transformer"], "did you mean 'transformers'"),
        (["--chunk", "2048"], "NEW\\+CACHED"),
        (["--chunk", "64+64", "--recipe", "full"], "has no cycle"),
    ],
)
def test_bad_input_is_refused(words: list[str], hint: str) -> None:
    given = bench.options().parse_args(["--random", "tiny", "--device", "cpu", *words])
    with pytest.raises(ConfigError, match=hint):
        bench.plan_of(given)


def test_an_interpreter_that_is_not_there_is_refused() -> None:
    with pytest.raises(ConfigError, match="no interpreter"):
        end(run(plan(peers=("kvpress-snapkv",), kvpress="/nowhere/python")))


def test_all_peers_are_those_that_make_sense_on_the_device() -> None:
    assert "transformers-static" not in peers_on("cpu")
    assert "llama.cpp" in peers_on("cpu")
