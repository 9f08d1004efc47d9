"""Global scoring: one run with the whole text in the cache, to compare what a pot kept with.

Section 3.4 asks what the first generated token attends to when nothing was thrown away, in texts that fit.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from infinipot.errors import ConfigError
from infinipot.inspect.measures import Floats
from infinipot.reading.model import Model
from infinipot.reading.reader import Reader
from infinipot.reading.sampling import Generation
from infinipot.recipes.recipe import Recipe
from infinipot.text.tokenizer import Format, Tokenizer

SPARE = 0.8  # of the memory that is free, what the cache may take


@dataclass(frozen=True)
class Whole:
    """Attention of the first generated token, and novelty, with every token in the cache."""

    layers: tuple[int, ...]
    scores: Floats  # [L, H, T] of the text
    novelty: Floats  # [T]


def whole(
    model: Model, tokenizer: Tokenizer, text: str, question: str, format: Format = "plain", bare: bool = False
) -> Whole:
    """Read the text whole, begin the answer, and take down what its first token attends to.

    With `bare`, text and question are a complete prompt as they are.
    """
    found = reader(model, tokenizer, text, question, format, bare)
    found.read(text)
    return score(found, question)


def reader(
    model: Model, tokenizer: Tokenizer, text: str, question: str, format: Format, bare: bool = False
) -> Reader:
    """A reader that holds the whole text and takes down attention and novelty."""
    count = sum(map(len, tokenizer.encode_stream([text]))) + len(tokenizer.encode(question))
    recipe = replace(Recipe.named("full", capacity=count + 256), format=format)  # frame and answer beside it
    found = recipe.reader(model, tokenizer, bare=bare)
    found.session.needs = found.pot.needs = frozenset({"last", "novelty"})
    return found


def score(found: Reader, question: str) -> Whole:
    """Say what the first token of the answer attends to, after a reader of `reader` has read the text."""
    count = found.pot.tokens
    answer = found.sequence(found.turn(question), Generation(max_new_tokens=2), final=True)
    answer.advance(int(answer.logits.argmax()))
    layers = [(n, known) for n, known in enumerate(found.pot.evidence()) if known is not None]
    scores = [known.last[0, :, :count].float().cpu().numpy() for _, known in layers if known.last is not None]
    novelty = layers[0][1].novelty[0, 0, :count].float().cpu().numpy()
    return Whole(tuple(n for n, _ in layers), np.stack(scores), novelty)


def check_memory(tokens: int, entry: float, free: int) -> None:
    """Refuse a text that would not fit: `entry` bytes a token, `free` bytes there are."""
    wanted = tokens * entry
    if wanted > SPARE * free:
        needed = f"global scoring needs {tokens:,} tokens, {wanted / 1e9:.1f} GB"
        remedy = f"use `no_global`, or a text of {int(SPARE * free / entry):,} tokens or less"
        raise ConfigError(f"{needed}; {free / 1e9:.1f} GB are free", field="global", remedy=remedy)
