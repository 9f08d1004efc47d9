"""`infinipot chat` about a file: laid out as a talk, whatever measures better for long readings."""

from __future__ import annotations

import json
from collections import deque
from pathlib import Path

import pytest
import torch

import toy_pots
from commands import run
from infinipot.cli import given
from infinipot.core.config import PotConfig
from infinipot.engine import Engine
from infinipot.errors import ConfigError
from infinipot.reading.intake import take_in
from infinipot.reading.reader import Reader
from infinipot.store import LocalStore
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


def test_a_message_that_is_too_long_has_its_document_too(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Engine("toy", "plain", ToyModel(), ByteTokenizer())
    monkeypatch.setattr(given, "open_engine", lambda *_, **__: engine)
    said = b"Who? " * 100 + b"\nWho?\n"
    done = run("chat", "--capacity", "256", "--max-new-tokens", "2", "--json", stdin=said)
    refused, answered = map(json.loads, done.stdout.splitlines())
    assert "--capacity" in refused["error"]
    assert "reply" in answered


def test_an_answer_of_nothing_is_said(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr(
        given, "open_engine", lambda *_, **__: Engine("toy", "plain", ToyModel(), ByteTokenizer())
    )
    monkeypatch.setattr(Reader, "answer", lambda *_: iter(["", " "]))
    done = run("ask", "Who?", "--file", text, "--capacity", "256")
    assert done.returncode == 0
    assert b"the model answered nothing: try --format chat" in done.stderr


def toy(monkeypatch: pytest.MonkeyPatch) -> list[Reader]:
    """Have every talk held by a toy; return the readers that talk."""
    readers: list[Reader] = []
    engine = Engine("toy", "plain", ToyModel(), ByteTokenizer())
    monkeypatch.setattr(given, "open_engine", lambda *_, **__: engine)
    chat = Reader.chat

    def watched(self: Reader, *arguments: object) -> object:
        readers.append(self)
        return chat(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(Reader, "chat", watched)
    return readers


SHORT = ("--capacity", "256", "--max-new-tokens", "4")


def test_a_system_s_message_comes_first_and_is_never_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    readers = toy(monkeypatch)
    done = run("chat", "--system", "Be kind.", *SHORT, stdin=b"Hello, how are you today?\n" * 30)
    assert done.returncode == 0, done.stderr
    reader, tokenizer = readers[-1], ByteTokenizer()
    before, between, _ = tokenizer.dialogue(["system", "user"], "chat")
    opening = [*before, *tokenizer.encode("Be kind."), *between]
    assert list(reader.frame.opening) == opening
    assert reader.config.opening == len(opening)
    assert reader.pot.cycles > 0
    # The opening is where every layer's slots begin, whatever was said since.
    first = engine_slots(opening)
    for held, fresh in zip(reader.pot.pot_layers, first, strict=True):
        torch.testing.assert_close(held.keys[:, :, : len(opening)], fresh)


def engine_slots(opening: list[int]) -> list[torch.Tensor]:
    """The keys of an opening alone."""
    reader = Reader(ToyModel(), ByteTokenizer(), None, PotConfig(256), "chat")
    deque(take_in(reader.session, opening, ()), maxlen=0)
    return [layer.keys[:, :, : len(opening)] for layer in reader.pot.pot_layers]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--system", "x" * 3000], b"more than a pot can set aside: use a larger --capacity"),
        (["--system", "x", "--pot", "kept"], b"--pot has read its text without a system's message"),
        (["--file", "x.txt", "--pot", "kept"], b"--pot is read already: leave out --file"),
        (["--pot", "nowhere"], b"no pot 'nowhere'"),
    ],
)
def test_what_a_talk_cannot_have(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, words: list[str], says: bytes
) -> None:
    toy(monkeypatch)
    (tmp_path / "x.txt").write_text("x")
    monkeypatch.chdir(tmp_path)
    LocalStore(tmp_path).save("kept", toy_pots.filled(1), toy_pots.card())
    done = run("chat", "--store", str(tmp_path), *words, stdin=b"Hi\n")
    assert done.returncode == 2
    assert says in done.stderr


def test_commands_are_no_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    readers = toy(monkeypatch)
    done = run("chat", *SHORT, stdin=b"/help\n/exit\n/etc/passwd is what?\n/quit\nnever\n")
    assert done.returncode == 0
    assert len(readers) == 1
    assert b"/quit   ends the talk" in done.stderr
    assert b"there is no /exit: /help tells what there is" in done.stderr
