"""`infinipot bench` on a tiny random model: what it tells, what it refuses, how peers fail."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from infinipot.bench import ceilings, ours, tables
from infinipot.bench import plan as p
from infinipot.bench.figure import draw
from infinipot.bench.peers import plain, worker
from infinipot.bench.plan import Plan
from infinipot.bench.rows import Row
from infinipot.bench.run import run
from infinipot.bench.shares import cycle_parts, steady
from infinipot.bench.subject import Subject, open_subject, text
from infinipot.cli.main import app
from infinipot.errors import ConfigError, InfiniPotError
from infinipot.recipes.recipe import Recipe

SMALL = ["bench", "--random", "tiny", "--capacity", "96", "--lengths", "256", "--new-tokens", "10"]
SMALL += ["--device", "cpu", "--threads", "1", "--rounds", "2", "--peers", "none"]


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ceilings of a moment."""
    monkeypatch.setattr(ceilings, "CPU", (128, 2**16, 0.01))
    monkeypatch.delenv("INFINIPOT_KVPRESS_PYTHON", raising=False)
    monkeypatch.delenv("INFINIPOT_GGUF", raising=False)


@pytest.fixture
def subject() -> Subject:
    return open_subject(Plan(random="tiny", lengths=(256,), capacities=(96,), device="cpu"))


def plan(**more: Any) -> Plan:
    named = {"random": "tiny", "lengths": (256,), "capacities": (96,), "new_tokens": 10, "device": "cpu"}
    return Plan(**{**named, "rounds": 3, "threads": 1, **more})


def end(work: Generator[Any, None, Any]) -> Any:
    """What a run returns."""
    while True:
        try:
            next(work)
        except StopIteration as done:
            return done.value


def invoke(*words: str) -> Any:
    return CliRunner().invoke(app, list(words))


# What it tells ------------------------------------------------------------------


def test_one_json_document_and_no_progress(tmp_path: Path) -> None:
    done = invoke(*SMALL, "--recipe", "infinipot,full", "--documents", "1", "--json", "--out", str(tmp_path))
    assert done.exit_code == 0, done.exception
    assert done.stderr == ""
    told = json.loads(done.stdout)
    assert told == json.loads((tmp_path / "bench.json").read_text())
    assert {path.name for path in tmp_path.iterdir()} == {"bench.json", "figure7.png", "figure7.svg"}
    assert set(told) == {
        *("command", "versions", "machine", "model", "ceilings", "recipes", "rows", "shares"),
        *("documents", "side_by_side"),
    }
    assert told["model"]["weight_bytes"] == 4 * told["model"]["parameters"] > 0
    pot, full = told["rows"]
    assert set(pot) == set(full)
    assert (pot["system"], pot["capacity"], pot["keep"], pot["length"]) == ("infinipot", 96, 48, 256)
    assert full["capacity"] is None
    assert pot["engine"] == "plain: graphs need a CUDA device, not cpu"
    assert pot["cycles"] > 5
    assert full["cycles"] == 0
    assert 0 < pot["reading_s"] < pot["first_token_s"]
    assert pot["cache_bytes"] < full["cache_bytes"]
    assert pot["matmul_share"] > 0 < pot["copy_share"]
    assert told["documents"][0]["documents"] == 1


def test_a_table_at_a_hundred_columns_and_a_line_for_every_row() -> None:
    done = invoke(*SMALL, "--documents", "1,2")
    assert done.exit_code == 0, done.exception
    assert max(map(len, done.stdout.splitlines())) <= 100
    for words in ("infinipot", "ceilings", "DISTILLATION", "FIRST", "DOCUMENTS"):
        assert words in done.stdout
    assert "infinipot at 256: first token after" in done.stderr


def test_the_json_is_written_where_nothing_can_draw(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    done = invoke(*SMALL, "--no-shares", "--out", str(tmp_path))
    assert done.exit_code == 0, done.exception
    assert [path.name for path in tmp_path.iterdir()] == ["bench.json"]
    assert "pip install 'infinipot[bench]'" in done.stderr


def test_the_command_line_starts_without_torch_and_matplotlib() -> None:
    code = "import sys, infinipot.cli.main, infinipot.bench.plan; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout.decode()
    assert not {"torch", "matplotlib", "transformers"} & set(loaded.split())


def test_the_picture_of_nothing_is_no_picture(tmp_path: Path) -> None:
    told = {"rows": [Row("kvpress-snapkv", False, 512, failed="not installed").describe(1, {})]}
    assert draw(told, tmp_path) == []


# How it measures ----------------------------------------------------------------


def test_the_parts_of_a_cycle_add_up(subject: Subject) -> None:
    reader = subject.reader(Recipe.named(capacity=96))
    parts = end(cycle_parts(reader, text(96, subject.vocabulary), 3))
    told = parts.describe()
    assert len(told["rounds_ms"]) == 3
    assert told["text_tokens"] + told["catalyst_tokens"] == 96 - 48
    shares = told["distillation_share"] + told["novelty_share"] + told["forward_share"]
    assert shares == pytest.approx(1, abs=1e-4)
    assert reader.pot.fill == 0


def test_a_steady_cycle_begins_with_what_is_kept_and_can_be_had_again(subject: Subject) -> None:
    reader = subject.reader(Recipe.named(capacity=96))
    ids = text(96, subject.vocabulary)
    again = steady(reader, ids)
    before = reader.pot.pot_layers[0].keys[:, :, :48].clone()
    reader._write(ids[:20], distil=True)
    again()
    assert reader.pot.fill == 48
    assert torch.equal(reader.pot.pot_layers[0].keys[:, :, :48], before)


def test_a_short_text_warms_up_the_last_chunk_of_a_long_one(subject: Subject) -> None:
    reader = subject.reader(Recipe.named(capacity=96))
    chunk = reader.config.chunk(len(reader.catalyst))
    short = ours.short_of(reader, 100_000)
    assert 3 * 96 <= short < 3 * 96 + chunk
    assert short % chunk == 100_000 % chunk


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


# Peers --------------------------------------------------------------------------


def test_peers_that_are_not_there_say_so_in_their_rows() -> None:
    told = end(run(plan(peers=("transformers", "kvpress-snapkv", "llama.cpp"), shares=False)))
    rows = {row["system"]: row for row in told["rows"]}
    assert rows["transformers"]["failed"] == ""
    assert rows["transformers"]["decode_ms"] > 0
    assert rows["kvpress-snapkv"]["failed"].startswith("not installed")
    assert rows["llama.cpp"]["failed"].startswith("needs a GGUF file")
    assert len({tuple(row) for row in told["rows"]}) == 1  # the same columns
    assert "not installed" in "".join(str(part) for part in tables._remarks(told))


def test_a_peer_without_memory_or_time_does_not_end_the_run(
    subject: Subject, monkeypatch: pytest.MonkeyPatch
) -> None:
    def measured(**more: Any) -> list[str]:
        found = plain.measure(plan(lengths=(256, 512), **more), subject, "transformers")
        return [row.failed for row in found if isinstance(row, Row)]

    done, skipped = measured(peer_limit=1e-9)
    assert done == ""
    assert skipped.startswith("skipped: would take")

    def out_of_memory(*_: Any) -> Any:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 32.00 GiB")

    monkeypatch.setattr(plain, "dynamic", out_of_memory)
    assert measured() == ["out of memory", "out of memory"]
    monkeypatch.setattr(ours, "_warm_up", out_of_memory)
    rows = [
        row
        for row in ours.measure(subject, Recipe.named(capacity=96), (256, 512), 10)
        if isinstance(row, Row)
    ]
    assert [row.failed for row in rows] == ["out of memory", "out of memory"]


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


# What it refuses ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["--random", "lama-3-8b"], "did you mean 'llama-3-8b'"),
        (["--lengths", "64"], "fits into a pot of 96.*--lengths"),
        (["--lengths", "many"], "such as 4096, 32k or 1m"),
        (["--recipe", "infinipott"], "did you mean 'infinipot'"),
        (["--peers", "transformer"], "did you mean 'transformers'"),
        (["--new-tokens", "4"], "at least 10"),
        (["--model", "smollm2"], "one of the two"),
        (["--chunk", "2048"], "NEW\\+CACHED"),
        (["--chunk", "64+64", "--recipe", "full"], "has no cycle"),
        (["--device", "tpu"], "is not there"),
        (["--kvpress", "/nowhere/python", "--peers", "kvpress-snapkv"], "no interpreter"),
        (["--keep", "96"], "keep is 96"),
    ],
)
def test_bad_input_is_refused_in_one_line(words: list[str], hint: str) -> None:
    found = invoke(*SMALL, *words).exception
    assert isinstance(found, InfiniPotError)
    with pytest.raises(ConfigError, match=hint):
        raise found
    assert "\n" not in str(found)


@pytest.mark.parametrize(("text", "wanted"), [("32k,1m", (32768, 1048576)), (" 4096 ,4k,", (4096,))])
def test_numbers_as_people_write_them(text: str, wanted: tuple[int, ...]) -> None:
    assert p.numbers(text, "lengths") == wanted
    assert p.shown(wanted[0]) in ("32K", "4K")


def test_all_peers_are_those_that_make_sense_on_the_device() -> None:
    assert "transformers-static" not in p.peers("all", cpu=True)
    assert "llama.cpp" not in p.peers("all", cpu=False)
    assert p.peers("none", cpu=True) == ()
