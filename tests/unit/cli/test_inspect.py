"""`infinipot inspect` as a user meets it: a tiny random model in a folder."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from commands import run
from infinipot.cli.inspect import PAPER, recipes
from infinipot.errors import ConfigError
from infinipot.reading.recording import Record


def test_the_paper_s_recipes_are_read_scored_and_shown(model: str, tmp_path: Path) -> None:
    text = tmp_path / "night.txt"
    text.write_text("It was a dark and stormy night; <|im_end|> the rain fell.\n" * 40)
    words = ["--file", str(text), "--question", "What fell?", "--model", model, "--recipe", "paper"]
    words += ["--capacity", "256", "--max-new-tokens", "4", "--out", str(tmp_path / "out"), "--json"]
    done = run("inspect", *words)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    names = [one["name"] for one in told["recipes"]]
    assert names == ["swa", "ccd", "cap-only general", "cap-only question", "infinipot question"]
    assert {one["held"] for one in told["recipes"]} == {128}, "all keep equally many"
    assert all(0 < one["hit_rate"]["mean"] <= 1 for one in told["recipes"])
    assert [pair["recipes"] for pair in told["overlaps"]] == [
        ["swa", "ccd"],
        ["cap-only question", "infinipot question"],
    ]
    assert all(Path(name).is_file() for name in told["files"])
    record = Record.load(tmp_path / "out" / "infinipot-question.npz")
    assert record.about["recipe"]["capacity"] == 256
    assert text.read_text() in "".join(record.pieces)
    assert "night.txt" in (tmp_path / "out" / "index.html").read_text()


def test_recipes_are_named_with_their_catalyst() -> None:
    found = recipes("infinipot:G, sirllm", 512, None, "Who?")
    assert list(found) == ["infinipot general", "sirllm"]
    assert [one.config.kept for one in found.values()] == [256, 256]
    assert recipes("infinipot", 512, 100, "Who?")["infinipot"].catalyst == "question"
    printed = recipes("paper", 512, None, "Who?")
    assert list(printed) == [name.replace(":", " ") for name in PAPER.split(",")]
    told = [recipe.describe() for name, recipe in printed.items() if "infinipot" in name or "cap" in name]
    assert [(one["pool"], one["units"]) for one in told] == [(1, "slots")] * 3
    assert (
        recipes("cap-only:general", 512, None, "Who?")["cap-only general"].describe()["units"] == "sentences"
    )


@pytest.mark.parametrize(
    ("listed", "told"),
    [
        ("full", "'full' drops nothing while it reads"),
        ("infinipott", "did you mean 'infinipot'"),
        ("sirllm:general", "'sirllm' asks no catalyst: leave out ':general'"),
        ("infinipot:generl", "did you mean 'general'"),
    ],
)
def test_what_cannot_be_recorded_is_refused_before_anything_is_loaded(listed: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        recipes(listed, 512, None, "Who?")
