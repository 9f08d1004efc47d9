"""`infinipot read`, `ask --pot` and `pots` as a user meets them: real processes, a tiny random model."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import transformers as tf
from typer.testing import CliRunner

import small_tokenizers
import toy_pots as toy
from infinipot.cli.main import app
from infinipot.errors import InfiniPotError
from infinipot.store import LocalStore

LINE = "It was a dark and stormy night; the rain fell in torrents.\n"
POT = ["--capacity", "192"]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("INFINIPOT_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("INFINIPOT_STORE", raising=False)
    return tmp_path / "home"


@pytest.fixture
def text(tmp_path: Path) -> str:
    path = tmp_path / "night.txt"
    path.write_text(LINE * 10)
    return str(path)


def run(*words: str) -> dict:
    """Run a command in this process; return its JSON document."""
    done = CliRunner().invoke(app, [*words, "--json"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def refused(*words: str) -> str:
    done = CliRunner().invoke(app, list(words))
    assert done.exit_code
    assert not done.stdout
    if isinstance(done.exception, InfiniPotError):
        assert "\n" not in str(done.exception)
        return str(done.exception)
    return done.output  # wrong usage


def test_read_once_ask_for_weeks(model: str, text: str, home: Path) -> None:
    kept = run("read", "--file", text, "--save", "night", "--model", model, *POT)
    assert (kept["pot"], kept["title"], kept["model"]) == ("night", "night.txt", "tiny")
    assert kept["source_bytes"] == Path(text).stat().st_size
    assert kept["tokens_read"] > 192
    assert kept["cycles"] > 1
    assert kept["store"] == str(home / "pots")
    assert set(kept["seconds"]) == {"load", "read", "save"}
    words = ["--model", model, "--max-new-tokens", "8", "--recall", "0", "What fell?"]
    asked = [run("ask", "--pot", "night", *words) for _ in range(2)]
    tokenizer = small_tokenizers.build("qwen")
    most = len(tokenizer("What fell?")["input_ids"]) + 40  # and the format's own
    for told in asked:
        assert told["pot"] == "night"
        assert told["tokens_read"] == kept["tokens_read"]  # known, not read
        assert 0 < told["tokens_processed"] <= most
        assert kept["recipe"]["units"] == "sentences"  # no question was known
        assert told["recipe"] == {
            **kept["recipe"],
            "recall": 0,
            "pot_bits": 16,
        }  # a card leaves out the usual
        assert told["passages"] == []
    assert asked[0]["answer"] == asked[1]["answer"]
    whole = run("ask", "--file", text, "--catalyst", "general", *POT, *words)
    assert whole["answer"] == asked[0]["answer"]  # as if it had just been read
    assert "tokens_processed" not in whole


def test_a_kept_pot_recalls_what_it_read(model: str, text: str, home: Path) -> None:
    run("read", "--file", text, "--save", "night", "--model", model, *POT)
    words = ["ask", "--pot", "night", "--model", model, "--max-new-tokens", "8", "What fell?"]
    told = run(*words)
    written = Path(text).read_text()
    assert told["passages"]
    for passage in told["passages"]:
        assert passage["source"] == "night.txt"
        assert written[passage["start"] : passage["end"]] == passage["text"]
    (archive,) = (home / "pots").glob("night.*.archive")
    archive.unlink()
    done = CliRunner().invoke(app, [*words, "--json"], catch_exceptions=False)
    assert json.loads(done.stdout)["passages"] == []  # the pot itself is whole
    assert "the archive of pot 'night' is missing" in done.stderr


def test_without_an_archive_nothing_is_kept_beside_the_pot(model: str, text: str, home: Path) -> None:
    run("read", "--file", text, "--save", "night", "--no-archive", "--model", model, *POT)
    assert not list((home / "pots").glob("*.archive"))
    assert run("ask", "--pot", "night", "--model", model, "What fell?")["passages"] == []


def test_append_is_reading_on(model: str, text: str, tmp_path: Path) -> None:
    other = tmp_path / "end.txt"
    other.write_text("The end. " * 12)
    pot = (*POT, "--tail", "distil")  # else the first text's end is treated as one
    run("read", "--file", text, "--save", "book", "--model", model, *pot, "--title", "A night")
    told = run("read", "--file", str(other), "--append", "book", "--model", model)
    whole = tmp_path / "whole.txt"
    whole.write_text(f"{Path(text).read_text()}\n\n{other.read_text()}")
    both = run("read", "--file", str(whole), "--save", "both", "--model", model, *pot)
    assert told["title"] == "A night"
    assert 0 < told["tokens_added"] < told["tokens_read"]
    named = run("read", "--file", text, "--file", str(other), "--save", "named", "--model", model, *pot)
    assert named["title"] == "night.txt, end.txt"
    assert told["tokens_read"] == both["tokens_read"]
    assert told["source_bytes"] == both["source_bytes"]
    answers = {run("ask", "--pot", name, "--model", model, "So?")["answer"] for name in ("book", "both")}
    assert len(answers) == 1


def test_int8_stays_int8(model: str, text: str) -> None:
    exact = run("read", "-f", text, "--save", "exact", "--model", model, *POT)
    small = run("read", "-f", text, "--save", "small", "--int8", "--model", model, *POT)
    assert small["encoding"] == "int8"
    assert small["bytes"] < exact["bytes"]
    assert run("read", "-f", text, "--append", "small", "--model", model)["encoding"] == "int8"
    assert run("ask", "--pot", "small", "--model", model, "--max-new-tokens", "2", "So?")["pot"] == "small"


def test_what_cannot_be_is_refused_before_anything_is_read(
    model: str, text: str, home: Path, tmp_path
) -> None:
    run("read", "-f", text, "--save", "night", "--model", model, *POT)
    other = tmp_path / "other"
    torch.manual_seed(2)
    tf.LlamaForCausalLM(tf.LlamaConfig.from_pretrained(model)).save_pretrained(other)
    small_tokenizers.build("qwen").save_pretrained(other)
    (tmp_path / "new.txt").write_text("new")
    cases = {
        "already": ["read", "-f", text, "--save", "night", "--model", model],
        "give `save` NAME": ["read", "-f", text],
        "one of them": ["read", "-f", text, "--save", "a", "--append", "b"],
        "leave out `replace`": ["read", "-f", text, "--append", "night", "--replace"],
        "no pot 'nowhere'": ["read", "-f", text, "--append", "nowhere", "--capacity", "192"],
        "nothing to read": ["read", "--save", "a"],
        "no name for a pot": ["read", "-f", text, "--save", "../a"],
        "needs the question": ["read", "-f", text, "--save", "a", "--catalyst", "question"],
        "no pot 'nosuch'": ["ask", "--pot", "nosuch", "So?"],
        "no name": ["ask", "--pot", "../night", "So?"],
        "leave out `file`": ["ask", "--pot", "night", "--file", text, "So?"],
        "leave out `capacity`": ["ask", "--pot", "night", "--capacity", "192", "So?"],
        "leave out `tail`": ["ask", "--pot", "night", "--tail", "raw", "So?"],
        "leave out `recipe`": ["read", "-f", text, "--append", "night", "--recipe", "h2o"],
        "say where it is with `model`": ["ask", "--pot", "night", "So?"],
        "read by another model (tiny, not other)": ["ask", "--pot", "night", "--model", str(other), "So?"],
        "read by another": ["read", "-f", text, "--append", "night", "--model", str(other)],
        "`dtype` float32": ["ask", "--pot", "night", "--model", model, "--dtype", "bfloat16", "So?"],
        "cannot be used as a store": ["pots", "list", "--store", "s3://bucket/x"],
    }
    before = (home / "pots" / "night.pot").read_bytes()
    for says, words in cases.items():
        assert says in refused(*words)
    assert (home / "pots" / "night.pot").read_bytes() == before
    assert LocalStore(home / "pots").names() == ["night"]
    words = ["--save", "night", "--replace", "--model", model, *POT]
    told = run("read", "-f", str(tmp_path / "new.txt"), *words)
    assert told["source_bytes"] == 3


def test_list_show_export_import_remove(tmp_path: Path, home: Path) -> None:
    assert run("pots", "list") == {"store": str(home / "pots"), "pots": []}
    store = LocalStore(home / "pots")
    store.save("book", toy.filled(1), toy.card(title="[red]A book[/red]"))
    (store.folder / "bad.pot").write_bytes(b"nothing")
    bad, good = run("pots", "list")["pots"]
    assert "not a whole pot" in bad["error"]
    assert (good["pot"], good["title"]) == ("book", "[red]A book[/red]")
    shown = CliRunner().invoke(app, ["pots", "list"], env={"COLUMNS": "200"}).stdout
    assert "[red]A book[/red]" in shown
    assert "not a whole pot" in shown
    assert run("pots", "show", "book")["recipe"]["capacity"] == 64
    assert "tokens_read  180" in CliRunner().invoke(app, ["pots", "show", "book"]).stdout
    assert run("pots", "export", "book", str(tmp_path))["path"] == str(tmp_path / "book.pot")
    assert "there already" in refused("pots", "export", "book", str(tmp_path))
    assert run("pots", "import", str(tmp_path / "book.pot"), "--name", "copy")["pot"] == "copy"
    assert "already" in refused("pots", "import", str(tmp_path / "book.pot"))
    assert "no such file" in refused("pots", "import", str(tmp_path / "nowhere"))
    assert run("pots", "rm", "book") == {"pot": "book", "removed": True}
    assert "no pot 'book'" in refused("pots", "rm", "book")
    elsewhere = ["--store", str(tmp_path / "elsewhere")]
    run("pots", "import", str(tmp_path / "book.pot"), *elsewhere)
    assert [pot["pot"] for pot in run("pots", "list", *elsewhere)["pots"]] == ["book"]


def test_the_list_needs_no_torch(home: Path) -> None:
    LocalStore(home / "pots").save("book", toy.filled(1), toy.card())
    code = (
        "import sys; sys.argv = ['infinipot', 'pots', 'list', '--json']\n"
        "from infinipot.cli.main import run\n"
        "try: run()\n"
        "finally: print(sorted({'torch', 'transformers', 'fsspec'} & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60, env=os.environ)
    assert done.returncode == 0
    assert done.stderr.strip() == b"[]"
    assert json.loads(done.stdout)["pots"][0]["pot"] == "book"


def test_recall_by_meaning_is_refused_where_its_model_is_missing(
    model: str, text: str, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = ["ask", "--model", model, "--recall", "0", "What fell?"]
    wish = "infinipot models pull all-mpnet-base-v2"
    assert wish in refused(*asked, "--file", text, "--meaning", "6")
    run("read", "--file", text, "--save", "night", "--model", model, *POT)
    assert wish in refused("ask", "--pot", "night", "--meaning", "6", "What fell?")
    run(*asked, "--file", text, "--capacity", "192", "--meaning", "0", "--max-new-tokens", "2")
