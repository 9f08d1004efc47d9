"""`infinipot chat` about a file: laid out as a talk, whatever measures better for long readings."""

from __future__ import annotations

from pathlib import Path

import pytest

from commands import run
from infinipot.cli import given
from infinipot.engine import Engine
from infinipot.errors import ConfigError
from infinipot.reading.reader import Reader
from infinipot.testing.model import ToyModel
from infinipot.testing.tokenizer import ByteTokenizer
from infinipot.text.tokenizer import Format, Frame


class Untaught(ByteTokenizer):
    """Of a model without a chat template."""

    def frame(self, format: Format) -> Frame:
        if format == "chat":
            raise ConfigError("this model has no chat template")
        return super().frame(format)


@pytest.fixture
def text(tmp_path: Path) -> str:
    path = tmp_path / "small.txt"
    path.write_text("The captain of the ship Aurora is called Marta Lindqvist.\n")
    return str(path)


def layouts(monkeypatch: pytest.MonkeyPatch, tokenizer: ByteTokenizer, *words: str) -> list[Frame]:
    """The layout of every talk, for a model whose long readings measure better in the plain format."""
    seen: list[Frame] = []
    monkeypatch.setattr(given, "open_engine", lambda *_, **__: Engine("toy", "plain", ToyModel(), tokenizer))
    chat = Reader.chat

    def watched(self: Reader, *arguments: object) -> object:
        seen.append(self.frame)
        return chat(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(Reader, "chat", watched)
    done = run("chat", "--capacity", "256", "--max-new-tokens", "2", *words, stdin=b"Who?\n")
    assert done.returncode == 0, done.stderr
    return seen


def test_a_talk_about_a_file_has_the_layout_of_a_talk(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    tokenizer = ByteTokenizer()
    assert layouts(monkeypatch, tokenizer, "--file", text) == [tokenizer.frame("chat")]
    assert layouts(monkeypatch, tokenizer) == [tokenizer.frame("chat")]
    assert layouts(monkeypatch, tokenizer, "--format", "plain") == [tokenizer.frame("plain")]
    assert layouts(monkeypatch, Untaught(), "--file", text) == [tokenizer.frame("plain")]


def test_an_answer_of_nothing_is_said(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr(
        given, "open_engine", lambda *_, **__: Engine("toy", "plain", ToyModel(), ByteTokenizer())
    )
    monkeypatch.setattr(Reader, "answer", lambda *_: iter(["", " "]))
    done = run("ask", "Who?", "--file", text, "--capacity", "256")
    assert done.returncode == 0
    assert b"the model answered nothing: try --format chat" in done.stderr
