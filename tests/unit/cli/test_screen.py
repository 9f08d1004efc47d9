"""The bar while a text is read: its share never falls, and ends at the whole."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator

import pytest
import rich.progress

from infinipot.cli.estimate import Estimate, span
from infinipot.cli.given import Text
from infinipot.cli.screen import sign_of_life, watch_reading
from infinipot.reading.progress import Progress
from infinipot.recipes.recipe import Recipe
from infinipot.testing.model import ToyModel
from infinipot.testing.tokenizer import ByteTokenizer
from infinipot.text.windows import Encoded, encode_windows


class Windowed(ByteTokenizer):
    """Takes text ahead of the tokens it gives out, as every real tokenizer does."""

    def encode_stream(self, pieces: Iterable[str]) -> Iterator[list[int]]:
        def encode(text: str) -> Encoded:
            return self.encode(text), [(at, at + 1) for at in range(len(text))]

        return encode_windows(encode, pieces, 1024)


def test_the_share_that_is_shown_never_falls(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[float] = []
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setattr(
        rich.progress.Progress, "update", lambda self, task, completed, state: shown.append(completed)
    )
    text = "The quick brown fox jumps over the lazy dog. " * 60
    pieces = [text[:2100], text[2100:]]  # as a file comes: in blocks that are larger than a window
    reader = Recipe.named(capacity=128, catalyst="general short").reader(ToyModel(), Windowed())
    reader.read("before")
    watch_reading(reader, Text(pieces, len(text)))
    assert len(shown) > 10
    assert shown == sorted(shown)
    assert shown[0] < 0.1 * len(text)
    assert shown[-1] == len(text)


def test_the_bar_has_a_share_and_a_time(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "140")
    text = "The quick brown fox jumps over the lazy dog. " * 60
    for total in (len(text), None):
        reader = Recipe.named(capacity=128, catalyst="general short").reader(ToyModel(), Windowed())
        watch_reading(reader, Text([text], total))
        drawn = capsys.readouterr().err
        assert ("100%" in drawn, " left " in drawn) == (total is not None,) * 2
        assert f"{len(text):,} tokens" in drawn


def steps(*passes: tuple[float, int]) -> list[Progress]:
    return [Progress(tokens, 1, 1, 8, seconds) for seconds, tokens in passes]


def announced(total: int | None, *found: Progress) -> list[str]:
    estimate = Estimate(total, Progress(100, 0, 0, 8, 50.0))
    return [estimate.after(step, 3 * (step.tokens_read - 100)) for step in found]


def test_a_long_read_is_announced_once_from_its_second_pass() -> None:
    """The first pass is slow; a token is three characters, so 600,000 are 200,000 tokens."""
    found = announced(600_000, *steps((54.0, 600), (55.0, 1100), (56.0, 1600)))
    assert found == ["", "reading some 200,000 tokens will take about 7 min", ""]


def test_one_that_is_slow_at_once_is_announced_at_once() -> None:
    (told,) = announced(60_000, *steps((60.0, 1100)))
    assert told == "reading some 20,000 tokens will take about 3 min"


@pytest.mark.parametrize("total", [None, 0, 6_000, 12_000])
def test_a_short_read_or_one_of_unknown_length_is_not_announced(total: int | None) -> None:
    assert announced(total, *steps((51.0, 600), (52.0, 1100), (56.5, 2100))) == [""] * 3


def test_times_are_said_as_people_say_them() -> None:
    assert [span(one) for one in (42, 89.7, 600, 5340, 12_000)] == [
        "42 s",
        "90 s",
        "10 min",
        "89 min",
        "3 h 20 min",
    ]


def test_loading_gives_a_sign_of_life_to_a_person_only(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with sign_of_life("loading x") as shown:
        assert shown is None
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("FORCE_COLOR", "1")
    with sign_of_life("loading x") as shown:
        assert shown is not None
    assert "loading x" in capsys.readouterr().err
