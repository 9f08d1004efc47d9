"""Findings of several rows, averaged and drawn; toy models read them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from infinipot.engine import Engine
from infinipot.errors import InputError
from infinipot.inspect.findings import findings
from infinipot.inspect.run import Run, record, whole
from infinipot.reading.sampling import Generation
from infinipot.recipes.recipe import Recipe
from infinipot.testing.model import ToyModel
from infinipot.testing.tokenizer import ByteTokenizer
from paper.averages import Averages, averages
from paper.folder import FIGURES, TABLE, paper
from paper.search import searched

MODEL, TOKENIZER = ToyModel(layers=3), ByteTokenizer()
ENGINE = Engine("toy", "plain", MODEL, TOKENIZER)
QUESTION = "Which dog?"
RECIPES = {
    "swa": "swa",
    "cap-only question": "cap-only",
    "infinipot question": "infinipot",
    "sirllm": "sirllm",
}
ABOUT = {"model": {"name": "toy"}, "options": {"capacity": 160}}


def interval(values: Sequence[float]) -> tuple[float, float]:
    return min(values), max(values)


def text(lines: int) -> str:
    return "".join(f"The {lines} quick brown foxes met dog number {n}.\n" for n in range(lines))


def read(name: str, lines: int) -> Run:
    catalyst = {"catalyst": "a summary"} if name.endswith("question") else {}
    recipe = Recipe.named(RECIPES[name], capacity=160, keep=80, tail="distil", **catalyst)
    reader = recipe.reader(MODEL, TOKENIZER, bare=True)
    return record(reader, text(lines), QUESTION, Generation(4), {"name": name})


def row(lines: int) -> dict[str, Any]:
    runs = [read(name, lines) for name in list(RECIPES)[:3]]
    found = findings(runs, whole(ENGINE, text(lines), QUESTION, "plain", bare=True))
    return {"aim": FIGURES, "task": "dogs", "text": str(lines), "id": f"row {lines}", **found.json()}


@pytest.fixture(scope="module")
def rows() -> list[dict[str, Any]]:
    return [row(8), row(14)]


@pytest.fixture(scope="module")
def found(rows: list[dict[str, Any]]) -> Averages:
    return averages(rows, interval)


def test_hit_rates_are_means_over_rows_with_an_interval_over_rows(
    rows: list[dict[str, Any]], found: Averages
) -> None:
    for place, name in enumerate(found.hits):
        each = [one["recipes"][place]["hit_rate"] for one in rows]
        assert found.hits[name].mean == pytest.approx(np.mean([hits["mean"] for hits in each]), abs=2e-4)
        assert found.hits[name].low == pytest.approx(min(hits["mean"] for hits in each), abs=2e-4)
        layers = np.mean([hits["layers"] for hits in each], axis=0)
        assert [mean.mean for mean in found.hits_by_layer[name]] == pytest.approx(layers, abs=1e-4)
        assert found.hits[name].rows == 2
    swa, ours = (found.hits[name].mean for name in ("swa", "infinipot question"))
    assert found.gains["infinipot question"].mean == pytest.approx(ours - swa, abs=2e-4)
    assert "swa" not in found.gains


def test_frequencies_are_means_by_part_of_the_text(rows: list[dict[str, Any]], found: Averages) -> None:
    assert set(found.frequency) == {*list(RECIPES)[:3], "global scoring"}
    for name, values in found.frequency.items():
        assert values.shape == (3, 64)
        np.testing.assert_allclose(values, np.mean([r["frequency_by_position"][name] for r in rows], axis=0))


def test_a_cycle_is_averaged_over_the_rows_that_have_it(rows: list[dict[str, Any]], found: Averages) -> None:
    short, long = (one["recipes"][2]["novelty"] for one in rows)
    assert short["cycles"] == list(range(1, len(short["cycles"]) + 1)), "settled: the last one is the end"
    assert len(short["cycles"]) == rows[0]["recipes"][2]["cycles"] < len(long["cycles"])
    curve = found.novelty["infinipot question"]
    assert curve.cycles == long["cycles"]
    assert short["held"][0] != long["held"][0]
    assert curve.means[0].rows == 2
    assert curve.means[0].mean == pytest.approx((short["held"][0] + long["held"][0]) / 2, abs=1e-3)
    assert (curve.means[-1].mean, curve.means[-1].rows) == (long["held"][-1], 1)
    share = found.share["infinipot question"].means
    assert share[-1].mean == pytest.approx(long["held"][-1] / long["global"][-1], abs=1e-4)


def test_overlap_is_that_of_the_two_recipes_of_figure_3(rows: list[dict[str, Any]], found: Averages) -> None:
    wanted = ["cap-only question", "infinipot question"]
    pairs = [next(p for p in one["overlaps"] if p["recipes"] == wanted) for one in rows]
    assert found.overlap.cycles == pairs[1]["cycles"]
    first = np.mean([pair["overlap"][0] for pair in pairs])
    assert found.overlap.means[0].mean == pytest.approx(first, abs=1e-4)
    end = np.mean([pair["overlap"][-1] for pair in pairs])
    assert found.overlap_in_the_end is not None
    assert found.overlap_in_the_end.mean == pytest.approx(end, abs=1e-4)


def test_nothing_to_average_is_one_line() -> None:
    with pytest.raises(InputError, match="no row was read yet"):
        averages([], interval)


def test_rows_become_a_folder(rows: list[dict[str, Any]], tmp_path: Path) -> None:
    runs = [read(name, 8) for name in ("infinipot question", "sirllm")]
    sought = searched("dogs", "row 8", QUESTION, ["dog number 3"], runs, [1.0, 0.0])
    told = list(paper([*rows, {"aim": TABLE, "row": sought.json()}], ABOUT, tmp_path, interval))
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"inside.json", "table8.json", "table8.md", "figure2-dogs.png", "figure3-dogs.png"}
    inside = json.loads((tmp_path / "inside.json").read_text())
    assert [one["id"] for one in inside["rows"]] == ["row 8", "row 14"]
    assert set(inside["averages"]["dogs"]["hit_rate"]) == set(list(RECIPES)[:3])
    assert json.loads((tmp_path / "table8.json").read_text())["best"] == ["row 8"]
    assert (tmp_path / "figure3-dogs.png").read_bytes().startswith(b"\x89PNG")
    assert any("infinipot question" in line for line in told)
    assert told[-1].startswith("\ntable 8: searched 1, ours only 1")


def test_a_bare_question_follows_the_text_at_once() -> None:
    framed, bare = (whole(ENGINE, text(2), QUESTION, "plain", bare=one) for one in (False, True))
    assert framed.scores.shape == bare.scores.shape
    assert not np.array_equal(framed.scores, bare.scores)
