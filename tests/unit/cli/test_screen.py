"""The bar while a text is read: its share never falls, and ends at the whole."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator

import pytest
import rich.progress

from infinipot.cli.given import Text
from infinipot.cli.screen import watch_reading
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
