"""`infinipot recipes`, and --recipe where it is used."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from infinipot.cli.main import app
from infinipot.errors import ConfigError
from infinipot.recipes.presets import presets

DOCS = Path(__file__).parents[3] / "docs" / "recipes.md"
ours = [name for name, method in presets().items()]


def call(*arguments: str) -> str:
    done = CliRunner().invoke(app, list(arguments), catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


def test_the_table_names_every_recipe_and_marks_the_unbounded() -> None:
    lines = [line.rstrip() for line in call("recipes").splitlines()]
    for name in ours:
        assert any(line.startswith(name) for line in lines), name
    unbounded = lines[lines.index("MEMORY GROWS WITH THE TEXT") :]
    found = [line.split()[0] for line in unbounded if line[:1].isalpha() and line[0].islower()]
    assert [name for name in found if name in ours] == ["full", "snapkv", "self-extend"]


def test_one_recipe_in_full_and_as_json() -> None:
    shown = call("recipes", "h2o")
    for word in ("heavy=4", "arXiv:2306.14048", "token by token", "attention of every token"):
        assert word in " ".join(shown.split())
    stated = json.loads(call("recipes", "h2o", "--json"))
    assert stated["knobs"] == {"heavy": 4, "share": 0.0}
    assert [row["name"] for row in json.loads(call("recipes", "--json"))] == ours


def test_a_setting_that_differs_where_no_question_is_known_is_told() -> None:
    assert "with no question known units=sentences" in " ".join(call("recipes", "cap-only").split())
    rows = json.loads(call("recipes", "--json"))
    told = [row["name"] for row in rows if row["with no question known"] == {"units": "sentences"}]
    assert told == ["infinipot", "cap-only", "no-cr-rope"]
    assert "question known" not in call("recipes", "swa")


def test_the_docs_are_made_from_the_same_source() -> None:
    wanted = call("recipes", "--markdown").strip()
    assert DOCS.read_text().strip() == wanted, "run: infinipot recipes --markdown > docs/recipes.md"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--recipe", "snapvk"], "unknown recipe 'snapvk': did you mean 'snapkv'?"),
        (["--recipe", "h2o", "--set", "heavy=5000"], "use `capacity` 5002 or more"),
        (["--recipe", "h2o", "--set", "heavy"], "use NAME=VALUE"),
        (["--recipe", "full", "--novelty", "0.3"], "unknown setting of recipe 'full' 'novelty'"),
        (["--recipe", "swa", "--set", "sinks=2"], "sinks is what makes recipe 'swa'"),
        (["--step", "4096"], "`step` is 4096: use 1 to 4095"),
        (["--step", "4", "--keep", "8"], "give one of them"),
    ],
)
def test_a_wrong_recipe_is_refused_before_any_model_is_loaded(
    arguments: list[str], says: str, tmp_path: Path
) -> None:
    text = tmp_path / "text.txt"
    text.write_text("some text")
    with pytest.raises(ConfigError) as caught:
        CliRunner().invoke(
            app, ["ask", "what?", "--file", str(text), "--model", "none", *arguments], catch_exceptions=False
        )
    assert says in str(caught.value)
