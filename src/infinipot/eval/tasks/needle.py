"""A needle in a haystack: one statement hidden in a long text, and a question about it.

The needle is the passkey of the landmark-attention test unless another one is given; the hay is that
test's noise or any folder of texts. The needle stands on a line of its own, between two sentences.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import astuple, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from infinipot.common.suggest import hint
from infinipot.errors import ConfigError
from infinipot.eval.tasks import trials
from infinipot.eval.tasks.hay import Bale, Hay, boundary
from infinipot.eval.tasks.passkey import OPENING, QUESTION, STATEMENT, draw, first_number
from infinipot.eval.tasks.task import Count, Example, TaskType
from infinipot.recipes.option import Option

_KEY = "{key}"


@dataclass(frozen=True)
class Needle:
    """What is hidden, what is asked, what is right; `{key}` stands for a number drawn for each trial."""

    statement: str
    question: str
    answer: str
    opening: str = ""  # what the text begins with

    def __post_init__(self) -> None:
        if not self.statement.strip() or not self.question.strip() or not self.answer.strip():
            raise ConfigError("a needle needs a statement, a question and an answer: give all three")
        if _KEY in self.answer and self.answer != _KEY:
            raise ConfigError(f"a needle's answer is {_KEY} alone, or without it: '{self.answer}' is neither")
        if (_KEY in self.answer) != (_KEY in self.statement):
            raise ConfigError(f"{_KEY} belongs in a needle's statement and answer, or in neither")

    def with_key(self, key: str) -> Needle:
        """Return the needle with the key in its places, if there are any."""
        return Needle(*(text.replace(_KEY, key) for text in astuple(self)))


PASSKEY = Needle(STATEMENT, QUESTION, _KEY, OPENING)
SANDWICH = Needle(
    "The best thing to do in San Francisco is eat a sandwich and sit in Dolores Park on a sunny day.",
    "What is the best thing to do in San Francisco?",
    "eat a sandwich and sit in Dolores Park on a sunny day",
)
NEEDLES = {"passkey": PASSKEY, "sandwich": SANDWICH}


@dataclass(frozen=True)
class NeedleTask(trials.Trials):
    """Needles at every depth of hay of every length."""

    hay: Path | None = None  # a folder of .txt files, or one; noise where None
    needle: Needle = PASSKEY
    new_tokens: int = 32
    name: str = "needle"

    def __post_init__(self) -> None:
        super().__post_init__()
        _ = self._hay.files  # hay that is not there is told now, not in the middle of a run

    def describe(self) -> dict[str, Any]:
        """Return what the trials, the hay and the needle are."""
        return {**super().describe(), "hay": self._hay.name, "needle": self.needle.statement}

    @cached_property
    def _hay(self) -> Hay:
        return Hay(self.hay, self.seed)

    def examples(self, count: Count) -> Iterator[Example]:
        """Yield the examples length by length, depth by depth."""
        longest = self.needle.with_key("50000")
        fixed = count(_joined(longest.opening, longest.statement)) + count(longest.question)
        bales: dict[tuple[int, int], Bale] = {}  # counting tokens is slow, and depths share their hay
        for trial in self.each():
            place = trial.length, trial.number
            if place not in bales:
                bales[place] = self._hay.bale(count, trial.length - fixed, trial.number)
            yield self._example(bales[place], trial)

    def score(self, prediction: str, example: Example) -> float:
        """1 if the first number is the key, or if the answer is contained, whatever its case; else 0."""
        if self.needle.answer == _KEY:
            return first_number(prediction, example.answers[0])
        return float(example.answers[0].casefold() in prediction.casefold())

    def _example(self, bale: Bale, trial: trials.Trial) -> Example:
        needle = self.needle.with_key(draw(trial.seed))
        at = boundary(bale.text, int(trial.depth * len(bale.text)))
        text = _joined(needle.opening, bale.text[:at].strip(), needle.statement, bale.text[at:].strip())
        facts = {
            **trial.facts,
            "hay": self._hay.name,
            "hay_passes": round(bale.passes, 3),  # above 1, some of the hay is there twice
            "placed": round(at / max(1, len(bale.text)), 4),
        }
        return Example(trial.id, text, needle.question, (needle.answer,), self.new_tokens, facts=facts)


def _joined(*parts: str) -> str:
    return "\n".join(filter(None, parts))


def _make(options: Mapping[str, Any]) -> NeedleTask:
    rest = dict(options)
    hidden, question, answer, hay = (rest.pop(name) for name in ("needle", "question", "answer", "hay"))
    if hidden in NEEDLES and (question or answer):
        problem = f"the needle '{hidden}' has its own question and answer"
        raise ConfigError(problem, field="needle", remedy="leave yours out, or hide a sentence of your own")
    if hidden not in NEEDLES and len(hidden.split()) < 2:
        remedy = f"{hint(hidden, NEEDLES)} Or hide a sentence of several words"
        raise ConfigError(f"unknown needle '{hidden}'", field="needle", remedy=remedy)
    needle = NEEDLES.get(hidden) or Needle(hidden, question or "", answer or "")
    return NeedleTask(None if hay == "noise" else Path(hay).expanduser(), needle, **rest)


TASK = TaskType(
    "needle",
    "A sentence hidden in texts of your own, or in noise.",
    (
        *trials.OPTIONS,
        Option("hay", str, "noise", "What a needle lies in: noise or a folder.", metavar="noise|DIR"),
        Option("needle", str, "passkey", "What is hidden.", metavar="passkey|sandwich|TEXT"),
        Option("question", str, None, "What is asked about a needle of your own."),
        Option("answer", str, None, "The right answer to that question."),
    ),
    _make,
    tables=("length", "depth"),
)
