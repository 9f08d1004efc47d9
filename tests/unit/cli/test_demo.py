"""`infinipot demo` with a tiny model: what it shows, not whether the answers are right."""

from __future__ import annotations

import json
import re

import pytest
from rich.cells import cell_len

from commands import run
from infinipot.cli import demo
from infinipot.recall.archive import Archive
from infinipot.recall.search import search


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the last two chapters, and what is asked about them."""
    last = dict(list(demo.chapters().items())[-2:])
    monkeypatch.setattr(demo, "chapters", lambda: last)
    monkeypatch.setattr(demo, "QUESTIONS", demo.QUESTIONS[-2:])


@pytest.mark.usefixtures("few")
def test_every_question_stands_with_its_answers_and_where_they_come_from(model: str) -> None:
    done = run("demo", "--model", model, "--capacity", "2048", COLUMNS="80")
    assert done.returncode == 0, done.stderr.decode()
    shown = done.stdout.decode()
    for question, truth in demo.QUESTIONS:
        assert f"{question} ({truth})" in shown
    for way in demo.WAYS.values():
        assert shown.count(f"  {way}  ") == 2
    assert "Moby Dick, Chapter 12, Biographical, characters" in shown
    assert "“" in shown
    assert re.search(r"Right: \d of 2 with recall, \d of 2 from the pot alone, \d of 2 truncated", shown)
    assert max(map(cell_len, shown.splitlines())) <= 80


@pytest.mark.usefixtures("few")
def test_the_document_has_all_of_it(model: str) -> None:
    told = json.loads(run("demo", "--model", model, "--capacity", "2048", "--json").stdout)
    assert told["capacity"] == 2048 < told["tokens_read"]
    assert told["recall"] == 256
    for row, (question, truth) in zip(told["questions"], demo.QUESTIONS, strict=True):
        assert (row["question"], row["truth"]) == (question, truth)
        for way in demo.WAYS:
            assert row[f"{way}_right"] == (truth.lower() in row[way].lower())
        assert row["found"] == any(truth in passage["text"] for passage in row["passages"])
        assert all(passage["place"] and passage["quote"] for passage in row["passages"])
    assert told["full_kv_bytes"] > told["pot_bytes"]


def test_the_book_is_whole_and_recall_finds_the_passage_of_every_question() -> None:
    book, archive = demo.chapters(), Archive()
    assert [name.split(", ")[1] for name in book] == [f"Chapter {number}" for number in range(1, 14)]
    assert book["Moby Dick, Chapter 1, Loomings"].startswith("Call me Ishmael.")
    for name, text in book.items():
        archive.add(text, name)
    for question, truth in demo.QUESTIONS:
        found = search(archive, [question], 1024, len)
        assert any(truth in passage.text for passage in found), question
