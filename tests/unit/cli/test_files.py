"""Documents on the command line: places that name pages, what was added, a talk with a kept pot."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import small_documents as made
from commands import run

PAGES = [[f"The log of day {day}, line {line}: calm sea." for line in range(8)] for day in range(6)]
PAGES[3][2] = "The stowaway was called Ottokar."
SMALL = ("--capacity", "512", "--max-new-tokens", "4")


@pytest.fixture
def log(tmp_path: Path) -> str:
    path = tmp_path / "log.pdf"
    path.write_bytes(made.pdf([*PAGES, []], "0 0 9 9 re f"))
    return str(path)


def test_an_answer_from_a_pdf_names_the_page(model: str, log: str) -> None:
    words = ["ask", "-f", log, "--model", model, *SMALL, "Who is Ottokar?"]
    told = json.loads(run(*words, "--json").stdout)
    found = [passage for passage in told["passages"] if "Ottokar" in passage["text"]]
    assert [passage["source"] for passage in found] == ["log.pdf, page 4"]
    assert found[0]["place"].startswith("log.pdf, page 4, characters ")
    shown = run(*words)
    assert b"  log.pdf, page 4, characters " in shown.stderr
    assert b"1 of 7 pages of log.pdf have no text in them and are not read" in shown.stderr


def test_what_was_added_to_a_pot_is_told_and_the_pot_can_be_talked_to(
    model: str, log: str, tmp_path: Path
) -> None:
    (tmp_path / "more.md").write_text("# Harbour\nThe ship came home.\n")
    store, loaded = ("--store", str(tmp_path / "pots")), ("--model", model)
    run("read", "-f", log, "--save", "log", *store, *loaded, "--capacity", "192")
    done = run("read", "-f", str(tmp_path / "more.md"), "--append", "log", *store, *loaded)
    added, kept = done.stdout.decode().splitlines()
    assert added.startswith("added ")
    assert " tokens of more.md to pot 'log', which has read " in added
    assert kept.startswith("pot 'log' is kept in ")
    before = json.loads(run("pots", "show", "log", *store, "--json").stdout)
    talk = run(
        "chat", "--pot", "log", *store, *loaded, "--max-new-tokens", "4", "--json", stdin=b"Who?\nWhy?\n"
    )
    assert talk.returncode == 0, talk.stderr
    assert len(talk.stdout.splitlines()) == 2
    assert f"pot 'log': log.pdf, {before['tokens_read']:,} tokens".encode() in talk.stderr
    assert json.loads(run("pots", "show", "log", *store, "--json").stdout) == before  # as it was


def test_a_folder_is_read_with_its_names(model: str, tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    for name in "ab":
        (tmp_path / "src" / f"{name}.py").write_text(f"def {name}():\n    return 'Ottokar {name}'\n" * 40)
    (tmp_path / "src" / "c.bin").write_bytes(bytes(9))
    done = run("ask", "-f", str(tmp_path / "src"), "--model", model, *SMALL, "--json", "What is Ottokar b?")
    assert done.returncode == 0, done.stderr
    assert {passage["source"] for passage in json.loads(done.stdout)["passages"]} <= {"src/a.py", "src/b.py"}
    assert b"1 of 3 files of " in done.stderr


def test_python_runs_the_package_as_the_command() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "infinipot", "--version"], capture_output=True, timeout=60, env=os.environ
    )
    assert done.returncode == 0
    assert done.stdout.startswith(b"infinipot ")
