from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from infinipot.cli import models
from infinipot.errors import ModelError
from infinipot.hf import gguf
from infinipot.models import cache as store
from infinipot.models import catalog
from infinipot.models.download import Progress


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("INFINIPOT_HOME", str(tmp_path))
    return tmp_path


@pytest.fixture
def easy_pull(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pull that fetches nothing but leaves a model behind."""

    def pull(alias: str) -> Generator[Progress, None, None]:
        if store.card(alias):
            return
        yield Progress("downloading", 0, 100)
        yield Progress("downloading", 100, 100)
        yield Progress("preparing", 0, 0)
        release = catalog.find(alias)
        store.path(alias).mkdir(parents=True)
        card = store.Card(alias, release.sha256, store.STORE_VERSION)
        (store.path(alias) / store.CARD).write_text(json.dumps(vars(card)))

    monkeypatch.setattr(gguf, "pull", pull)


def run(*words: str) -> tuple[str, str]:
    result = CliRunner().invoke(models.app, list(words), catch_exceptions=False)
    assert result.exit_code == 0
    return result.stdout, result.stderr


@pytest.mark.usefixtures("easy_pull")
def test_list_as_json(home: Path) -> None:
    run("pull", "smollm2")
    document = json.loads(run("list", "--json")[0])
    assert document["home"] == str(home)
    first, *others = document["models"]
    assert [row["alias"] for row in document["models"]] == [*catalog.ALIASES, catalog.SENTENCES.alias]
    assert (first["installed"], first["default"], first["download_bytes"]) == (True, True, 98_362_432)
    assert first["disk_bytes"] > 0
    assert not any(row["installed"] or row["default"] for row in others)


def test_list_for_people() -> None:
    told, _ = run("list")
    for alias in catalog.ALIASES:
        assert alias in told
    assert "1,117 MB" in told
    assert "Apache-2.0" in told


def test_list_says_what_fits_and_which_to_take(monkeypatch: pytest.MonkeyPatch) -> None:
    for free, wanted, fitting in (
        (8e9, "qwen2.5-coder-1.5b", {"smollm2", "gemma-3-270m", "qwen2.5-coder-1.5b", "all-mpnet-base-v2"}),
        (1.9e9, "smollm2", {"smollm2", "gemma-3-270m", "all-mpnet-base-v2"}),
        (1e8, "smollm2", set()),
    ):
        monkeypatch.setattr(models, "available", lambda free=free: int(free))
        document = json.loads(run("list", "--json")[0])
        assert {row["alias"] for row in document["models"] if row["fits"]} == fitting
        assert [row["alias"] for row in document["models"] if row["advised"]] == [wanted]
        told = run("list")[0]
        assert f"--model {wanted}" in told
        assert f"{free / 1e9:.2f} GB are free here" in told


def test_what_models_need_is_what_was_measured() -> None:
    root = Path(__file__).parents[3]
    rows = json.loads((root / "docs" / "results" / "needs.json").read_text())["rows"]
    measured = {row["model"]: row["peak_memory_bytes"] for row in rows}
    for release in catalog.RELEASES:
        assert release.memory * 0.99 < measured[release.alias] <= release.memory


@pytest.mark.usefixtures("easy_pull")
def test_pull_draws_on_stderr_and_answers_on_stdout(home: Path) -> None:
    told, drawn = run("pull", "gemma-3-270m", "--json")
    document = json.loads(told)
    assert (document["pulled"], document["path"]) == (True, str(home / "models" / "gemma-3-270m"))
    assert "Gemma terms of use" in drawn
    assert "downloading" in drawn
    assert "preparing" in drawn
    told, drawn = run("pull", "gemma-3-270m")
    assert "it was already there" in told
    assert drawn == ""


@pytest.mark.usefixtures("easy_pull")
def test_rm() -> None:
    run("pull", "smollm2")
    assert json.loads(run("rm", "smollm2", "--json")[0])["freed_bytes"] > 0
    assert store.installed() == ()
    with pytest.raises(ModelError, match="smollm2 is not installed"):
        run("rm", "smollm2")


@pytest.mark.parametrize("command", ["pull", "rm"])
def test_unknown_alias_is_our_error(command: str) -> None:
    with pytest.raises(ModelError, match="did you mean 'smollm2'"):
        run(command, "smollm")


def test_interrupted_bar_closes_the_pull(monkeypatch: pytest.MonkeyPatch) -> None:
    closed = []

    def pull() -> Generator[Progress, None, None]:
        try:
            yield Progress("downloading", 1, 2)
        finally:
            closed.append(True)

    def interrupt(count: int) -> str:
        raise KeyboardInterrupt

    monkeypatch.setattr(models, "megabytes", interrupt)
    steps = pull()  # held here, so that only closing it, not losing it, ends it
    with pytest.raises(KeyboardInterrupt):
        models.draw_pull(steps)
    assert closed == [True]


def test_import_is_light() -> None:
    script = "import sys, infinipot.cli.models; print({'torch', 'transformers', 'rich'} & set(sys.modules))"
    assert subprocess.check_output([sys.executable, "-c", script], text=True) == "set()\n"
