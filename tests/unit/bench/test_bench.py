"""`infinipot bench` on a tiny random model: what it tells, how it measures, what it refuses."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from infinipot.bench.plan import Plan
from infinipot.bench.subject import Subject, open_subject
from infinipot.bench.systems import Measurement, Pots, Transformers, rows, warming_length
from infinipot.bench.tables import number, remarks
from infinipot.cli.bench import LENGTHS
from infinipot.cli.main import app
from infinipot.errors import ConfigError, InfiniPotError
from infinipot.recipes.recipe import Recipe

SMALL = ["bench", "--random", "tiny", "--capacity", "96", "--lengths", "256", "--new-tokens", "10"]
SMALL += ["--device", "cpu", "--threads", "1"]


@pytest.fixture
def subject() -> Subject:
    return open_subject(plan())


def plan(**more: Any) -> Plan:
    named = {"random": "tiny", "lengths": (256,), "capacities": (96,), "new_tokens": 10, "device": "cpu"}
    return Plan(**{**named, "threads": 1, **more})


def invoke(*words: str) -> Any:
    return CliRunner().invoke(app, list(words))


# What it tells ------------------------------------------------------------------


@pytest.mark.parametrize("weights", ["int8", "int4"])
def test_packed_weights_are_counted(weights: str, tiny_gguf: Path) -> None:
    full, few = (
        open_subject(plan(random=None, model=str(tiny_gguf), weights=one)) for one in ("full", weights)
    )
    assert few.parameters == full.parameters
    assert full.weight_bytes / 8 < few.weight_bytes < full.weight_bytes / 2


def test_one_json_document_and_no_progress(tmp_path: Path) -> None:
    out = tmp_path / "new" / "bench.json"
    done = invoke(*SMALL, "--recipe", "infinipot,full", "--documents", "1", "--json", "--out", str(out))
    assert done.exit_code == 0, done.exception
    assert done.stderr == ""
    told = json.loads(done.stdout)
    assert told == json.loads(out.read_text())
    assert set(told) == {"command", "versions", "machine", "model", "recipes", "rows", "documents"}
    assert told["model"]["weight_bytes"] == 4 * told["model"]["parameters"] > 0
    pot, full, peer = told["rows"]
    assert set(pot) == set(full) == set(peer)
    assert (pot["system"], pot["capacity"], pot["keep"], pot["length"]) == ("infinipot", 96, 48, 256)
    assert full["capacity"] is None
    assert pot["engine"] == "plain: graphs need a CUDA device, not cpu"
    assert pot["cycles"] > 5
    assert full["cycles"] == 0
    assert 0 < pot["reading_s"] < pot["first_token_s"]
    assert pot["cache_bytes"] < full["cache_bytes"]
    assert (peer["system"], peer["engine"], peer["failed"]) == ("transformers", "dynamic cache, sdpa", "")
    assert told["documents"][0]["documents"] == 1


def test_ratios_are_of_the_same_run_and_length() -> None:
    done = invoke(*SMALL[:6], "256,300", *SMALL[7:], "--json")
    told = json.loads(done.stdout)["rows"]
    theirs = {row["length"]: row for row in told if not row["ours"]}
    assert len(theirs) == 2
    for row in (row for row in told if row["ours"]):
        peer = theirs[row["length"]]
        assert row["reading_ratio"] == pytest.approx(row["tokens_s"] / peer["tokens_s"], rel=1e-4)
        assert row["decode_ratio"] == pytest.approx(peer["decode_ms"] / row["decode_ms"], rel=1e-4)


def test_a_table_at_a_hundred_columns_and_a_line_for_every_row() -> None:
    done = invoke(*SMALL, "--documents", "1,2")
    assert done.exit_code == 0, done.exception
    assert max(map(len, done.stdout.splitlines())) <= 100
    for words in ("infinipot", "transformers", "TIMES", "FIRST", "DOCUMENTS"):
        assert words in done.stdout
    assert "infinipot at 256: first token after" in done.stderr


def test_the_command_line_starts_without_torch_and_matplotlib() -> None:
    code = "import sys, infinipot.cli.main, infinipot.bench.plan; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout.decode()
    assert not {"torch", "matplotlib", "transformers"} & set(loaded.split())


# How it measures ----------------------------------------------------------------


def test_a_short_text_warms_up_the_last_chunk_of_a_long_one(subject: Subject) -> None:
    reader = subject.reader(Recipe.named(capacity=96))
    chunk = reader.config.chunk(len(reader.session.catalyst))
    short = warming_length(reader, 100_000)
    assert 3 * 96 <= short < 3 * 96 + chunk
    assert short % chunk == 100_000 % chunk


def test_options_go_to_the_recipes_that_have_them() -> None:
    made = plan(
        recipes=("infinipot", "sirllm", "full"), options={"pool": 1, "tail": "raw", "keep": 60}
    ).made()
    infinipot, sirllm, full = (recipe.describe() for recipe in made)
    assert (infinipot["pool"], infinipot["tail"], infinipot["keep"]) == (1, "raw", 60)
    assert (sirllm["tail"], sirllm["keep"], "pool" in sirllm) == ("raw", 60, False)
    assert full["keep"] is None


def test_a_system_without_memory_or_time_does_not_end_the_run(
    subject: Subject, monkeypatch: pytest.MonkeyPatch
) -> None:
    def measured(system: Any, **more: Any) -> list[str]:
        found = rows(system, plan(lengths=(256, 512), **more))
        return [row.failed for row in found if isinstance(row, Measurement)]

    pace = Transformers.run

    def slow(self: Transformers, length: int, new_tokens: int) -> Any:
        figures = yield from pace(self, length, new_tokens)
        return {**figures, "reading_s": 1000.0}

    monkeypatch.setattr(Transformers, "run", slow)
    done, skipped = measured(Transformers(subject))
    assert done == ""
    assert skipped.startswith("skipped: would take")

    def out_of_memory(*_: Any) -> Any:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 32.00 GiB")

    monkeypatch.setattr(Transformers, "run", out_of_memory)
    assert measured(Transformers(subject)) == ["out of memory", "out of memory"]
    monkeypatch.setattr(Pots, "warm_up", out_of_memory)
    assert measured(Pots(subject, Recipe.named(capacity=96))) == ["out of memory", "out of memory"]


def test_a_failed_row_has_no_figures_and_says_why() -> None:
    told = [Measurement("transformers", False, 512, failed="out of memory: 3 GB").describe()]
    assert told[0]["tokens_s"] is told[0]["reading_ratio"] is None
    assert "transformers at 512: out of memory: 3 GB" in remarks(told)


def test_numbers_have_three_digits() -> None:
    found = [number(value) for value in (None, 12345.6, 123.4, 12.34, 1.234, 0.01234)]
    assert found == ["-", "12,346", "123", "12.3", "1.23", "0.0123"]


# What it refuses ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["--random", "lama-3-8b"], "did you mean 'llama-3-8b'"),
        (["--lengths", "64"], "fits into a pot of 96.*lengths"),
        (["--lengths", "many"], "such as 2048 or 4k"),
        (["--recipe", "infinipott"], "did you mean 'infinipot'"),
        (["--new-tokens", "4"], "at least 10"),
        (["--model", "smollm2"], "measures one model"),
        (["--documents", "2", "--recipe", "full"], "has no cycle"),
        (["--device", "tpu"], "is not there"),
        (["--keep", "96"], "`keep` is 96"),
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
    assert LENGTHS.parse_list(text) == wanted
