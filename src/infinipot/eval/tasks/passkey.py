"""Passkey retrieval, in the wording of the landmark-attention test the paper uses (section 4.3).

A key is hidden at a depth of a long, repetitive text. Lengths are in tokens of
whatever tokenizer counts them.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from infinipot.eval.tasks import trials
from infinipot.eval.tasks.task import Count, Example, TaskType

OPENING = (
    "There is an important info hidden inside a lot of irrelevant text. Find it and memorize them. "
    "I will quiz you about the important information there."
)
NOISE = "The grass is green. The sky is blue. The sun is yellow. Here we go. There and back again."
STATEMENT = "The pass key is {key}. Remember it. {key} is the pass key."
QUESTION = "What is the pass key? The pass key is"


@dataclass(frozen=True)
class Passkey:
    """One example."""

    text: str
    question: str
    key: str
    depth: float


def passkey(count: Callable[[str], int], length: int, depth: float, seed: int) -> Passkey:
    """Return an example of at most about `length` tokens with its key at `depth` (0 first, 1 last)."""
    key = draw(seed)
    fixed = count(_text(key, "", "")) + count(QUESTION)
    sample = _noise(100 * len(NOISE))
    per_character = count(sample) / len(sample)
    size = max(0, int((length - fixed) / per_character))
    before = int(size * depth)
    return Passkey(_text(key, _noise(before), _noise(size - before)), QUESTION, key, depth)


def score(prediction: str, example: Passkey) -> float:
    """1 if the first number of the prediction is the key, else 0."""
    return first_number(prediction, example.key)


def first_number(prediction: str, key: str) -> float:
    """1 if the first number of the prediction is the key, else 0."""
    digits = "".join(c if c.isdigit() else " " for c in prediction).split()
    return float(bool(digits) and digits[0] == key)


def draw(seed: int) -> str:
    """Return a key: a number from 1 to 50,000."""
    return str(random.Random(seed).randint(1, 50000))


@dataclass(frozen=True, kw_only=True)
class PasskeyTask(trials.Trials):
    """Keys at every depth of noise of every length."""

    new_tokens: int = 12
    name: str = "passkey"

    def examples(self, count: Count) -> Iterator[Example]:
        """Yield the examples length by length, depth by depth."""
        for trial in self.each():
            made = passkey(count, trial.length, trial.depth, trial.seed)
            yield Example(trial.id, made.text, made.question, (made.key,), self.new_tokens, facts=trial.facts)

    def score(self, prediction: str, example: Example) -> float:
        """1 if the first number of the prediction is the key, else 0."""
        return first_number(prediction, example.answers[0])


def _text(key: str, before: str, after: str) -> str:
    return "\n".join((OPENING, before, STATEMENT.format(key=key), after))


def _noise(characters: int) -> str:
    repeats = characters // (len(NOISE) + 1) + 1
    return " ".join([NOISE] * repeats)[:characters]


TASK = TaskType(
    "passkey",
    "A number hidden in noise of any length.",
    trials.OPTIONS,
    lambda options: PasskeyTask(**options),
    tables=("length", "depth"),
)
