"""The share of a text that is read: it never falls, and is the whole only when all is read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise

import pytest

from infinipot.core.config import Tail
from infinipot.reading.progress import TextProgress
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


TEXT = "The quick brown fox jumps over the lazy dog. " * 51


@pytest.mark.parametrize("tail", ["fill", "distil", "raw"])
@pytest.mark.parametrize("block", [1, 100, 2048, 10_000])
def test_the_share_follows_the_tokens_and_never_falls(tail: Tail, block: int) -> None:
    tokenizer = Windowed()
    recipe = Recipe.named(capacity=128, tail=tail, catalyst="general short")
    reader = recipe.reader(ToyModel(), tokenizer)
    pieces = [TEXT[at : at + block] for at in range(0, len(TEXT), block)]
    text = TextProgress(tokenizer, pieces)
    steps = [(step.tokens_read, text.read(step.tokens_read)) for step in reader.reading_tokens(text.tokens())]
    assert len(steps) > 10
    assert all(before <= after for (_, before), (_, after) in pairwise(steps))
    assert all(abs(read - tokens) <= 1 for tokens, read in steps)  # a byte is a token here
    assert [read for _, read in steps[:-1] if read >= len(TEXT)] == []
    assert text.read(reader.tokens_read) == len(TEXT)


def test_tokens_that_spell_more_than_the_text_are_bounded_by_it() -> None:
    class Wordy(Windowed):
        def decode(self, ids) -> str:
            return "much more " * len(ids)

    text = TextProgress(Wordy(), [TEXT], size=lambda piece: 2 * len(piece))
    seen, count = [], 0
    for ids in text.tokens():
        for _ in ids:
            seen.append(text.read(count))
            count += 1
    assert seen == sorted(seen)
    assert max(seen) < 2 * len(TEXT)
    assert text.read(count) == 2 * len(TEXT)
