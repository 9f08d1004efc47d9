"""Passkey retrieval, in the wording of the landmark-attention test the paper uses (section 4.3).

A key is hidden at every depth of repetitive texts of every length, a few times each, from seeds of their own.
"""

import random
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import product
from typing import Any

from infinipot.errors import ConfigError
from infinipot.eval.tasks.task import Count, Example, TaskType
from infinipot.recipes.option import Option

OPENING = (
    "There is an important info hidden inside a lot of irrelevant text. Find it and memorize them. "
    "I will quiz you about the important information there."
)
NOISE = "The grass is green. The sky is blue. The sun is yellow. Here we go. There and back again."
STATEMENT = "The pass key is {key}. Remember it. {key} is the pass key."
QUESTION = "What is the pass key? The pass key is"
NEW_TOKENS = 12
LENGTHS = Option(
    "lengths", int, (4096, 8192, 16384), "Tokens of a text, e.g. 8k,128k,1m.", least=1, many=True
)
PLACE = "Where the needle lies, from 0, first, to 1, last."
DEPTHS = Option("depths", float, (0.1, 0.5, 0.9), PLACE, least=0, most=1, many=True)
TRIALS = Option("trials", int, 5, "Examples of each length and depth.", least=1)


@dataclass(frozen=True)
class Trial:
    """One text of one length with one thing hidden in it at one depth."""

    length: int  # tokens
    depth: float  # 0 first, 1 last
    trial: int
    seed: int

    @property
    def id(self) -> str:
        """The trial's name in results."""
        return f"{self.length}-{self.depth:g}-{self.trial}"


@dataclass(frozen=True, kw_only=True)
class Trials:
    """What the tasks with trials share."""

    lengths: tuple[int, ...] = LENGTHS.default
    depths: tuple[float, ...] = DEPTHS.default
    trials: int = TRIALS.default
    seed: int = 0

    def __post_init__(self) -> None:
        TRIALS.check(self.trials)
        for option, values in ((LENGTHS, self.lengths), (DEPTHS, self.depths)):
            for value in values:
                option.check(value)
            names = {f"{value:g}" if isinstance(value, float) else str(value) for value in values}
            if not names or len(names) < len(values):
                problem = f"`{option.name}` {'has a value twice' if names else 'is empty'}"
                raise ConfigError(problem, field=option.name, remedy="name each once, and more `trials`")

    def describe(self) -> dict[str, Any]:
        """Return what the trials depend on."""
        return {"lengths": list(self.lengths), "depths": list(self.depths), "trials": self.trials}

    def each(self) -> Iterator[Trial]:
        """Yield the trials length by length, depth by depth."""
        for length, depth, trial in product(self.lengths, self.depths, range(self.trials)):
            yield Trial(length, depth, trial, self.seed + 1000 * trial + int(100 * depth) + length)


@dataclass(frozen=True)
class PasskeyTask(Trials):
    """Keys at every depth of noise of every length."""

    name: str = "passkey"

    def examples(self, count: Count) -> Iterator[Example]:
        """Yield the examples length by length, depth by depth."""
        for trial in self.each():
            found = passkey(count, trial.length, trial.depth, trial.seed)
            yield replace(found, id=trial.id, facts=asdict(trial))

    def score(self, prediction: str, example: Example) -> float:
        """1 if the first number of the prediction is the key, else 0."""
        return first_number(prediction, example.answers[0])


def passkey(count: Count, length: int, depth: float, seed: int) -> Example:
    """Return an example of at most about `length` tokens with its key at `depth` (0 first, 1 last)."""
    key = draw(seed)
    fixed = count(_text(key, "", "")) + count(QUESTION)
    noise = partial(repeated, f"{NOISE} ")
    sample = noise(100 * len(NOISE))
    size = max(0, int((length - fixed) / (count(sample) / len(sample))))
    before = int(size * depth)
    text = _text(key, noise(before), noise(size - before))
    return Example(f"{length}-{depth:g}-{seed}", text, QUESTION, (key,), NEW_TOKENS)


def first_number(prediction: str, key: str) -> float:
    """1 if the first number of the prediction is the key, else 0."""
    digits = "".join(c if c.isdigit() else " " for c in prediction).split()
    return float(digits[:1] == [key])


def draw(seed: int) -> str:
    """Return a key: a number from 1 to 50,000."""
    return str(random.Random(seed).randint(1, 50000))


def _text(key: str, before: str, after: str) -> str:
    return "\n".join((OPENING, before, STATEMENT.format(key=key), after))


def repeated(text: str, size: int) -> str:
    """Return that many characters of a text, which begins again at its end."""
    return (text * (size // len(text) + 1))[:size]


TASK = TaskType(
    "passkey",
    "A number hidden in noise of any length.",
    (LENGTHS, DEPTHS, TRIALS),
    lambda options: PasskeyTask(**options),
    tables=("length", "depth"),
)
