"""A package that is installed adds its policy to the command, the library and the pot."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

PLUGIN = Path(__file__).parents[2] / "plugin"
RUN = """
from infinipot import Recipe
from infinipot.testing import ByteTokenizer
from infinipot.testing import ToyModel
one = Recipe.named("every-other", capacity=32, stride=4, tail="distil").reader(ToyModel(), ByteTokenizer())
one.read("x" * (33 - len(one.frame.opening)))  # one more than fits: one distillation to 16
print(one.pot.cycles, one.pot.pot_layers[0].source[0, 0, :16].tolist())
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """An environment in which pip has installed the plugin."""
    target = tmp_path_factory.mktemp("site")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*pip, "--target", str(target), str(PLUGIN)], check=True, timeout=120)
    return {**os.environ, "PYTHONPATH": str(target)}


def run(arguments: list[str], environment: dict[str, str]) -> str:
    done = subprocess.run(
        [sys.executable, *arguments], env=environment, check=True, capture_output=True, text=True, timeout=120
    )
    return done.stdout


def test_it_shows_up_among_the_recipes(installed: dict[str, str]) -> None:
    rows = json.loads(run(["-m", "infinipot.cli.main", "recipes", "--json"], installed))
    (row,) = [row for row in rows if row["name"] == "every-other"]
    assert row["summary"] == "Keeps every n-th slot first, then the latest of the rest"
    assert row["bounds"] == "memory"
    assert row["knobs"] == {"stride": 2}
    assert "every-other" in run(["-m", "infinipot.cli.main", "recipes"], installed)


def test_it_runs_with_its_own_knob(installed: dict[str, str]) -> None:
    cycles, kept = run(["-c", RUN], installed).split(maxsplit=1)
    others = [place for place in range(32) if place % 4]
    assert int(cycles) == 1
    assert json.loads(kept) == sorted([*range(0, 32, 4), *others[-8:]])


def test_it_is_gone_when_it_is_not_installed() -> None:
    rows = json.loads(run(["-m", "infinipot.cli.main", "recipes", "--json"], dict(os.environ)))
    assert "every-other" not in [row["name"] for row in rows]
