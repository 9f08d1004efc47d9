"""A needle in a haystack: a statement on a line of its own in a long text, and a question about it.

The needle is the passkey of the landmark-attention test unless another one is given; so is the hay.
"""

import random
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, astuple, dataclass
from functools import cache, cached_property, partial
from pathlib import Path
from typing import Any, Self

from infinipot.common.suggest import hint
from infinipot.errors import ConfigError, InputError
from infinipot.eval.tasks import passkey
from infinipot.eval.tasks.jsonl import DAMAGED, PACKED, open_file
from infinipot.eval.tasks.task import Count, Example, TaskType
from infinipot.recipes.option import Option

_KEY = "{key}"
_END = re.compile(r"[.!?][\"'”’)\]]*(?=\s)|[。！？]|\n(?=\s*\n)")  # the last characters of a sentence
_NEAR = 2000  # characters
_ROUNDS = 4
NEW_TOKENS = 32
HAY = Option("hay", str, "noise", "What a needle lies in: noise or a folder.", metavar="noise|DIR")


@dataclass(frozen=True)
class Needle:
    """What is hidden, what is asked, what is right; `{key}` stands for a number drawn for each trial."""

    statement: str
    question: str
    answer: str
    opening: str = ""  # what the text begins with

    def __post_init__(self) -> None:
        if not all(text.strip() for text in (self.statement, self.question, self.answer)):
            raise ConfigError("a needle needs a statement, a question and an answer: give all three")
        if _KEY in self.answer and self.answer != _KEY:
            raise ConfigError(f"a needle's answer is {_KEY} alone, or without it: '{self.answer}' is neither")
        if (_KEY in self.answer) != (_KEY in self.statement):
            raise ConfigError(f"{_KEY} belongs in a needle's statement and answer, or in neither")

    def with_key(self, key: str) -> Self:
        """Return the needle with the key in its places, if there are any."""
        return type(self)(*(text.replace(_KEY, key) for text in astuple(self)))


PASSKEY = Needle(passkey.STATEMENT, passkey.QUESTION, _KEY, passkey.OPENING)
SANDWICH = Needle(
    "The best thing to do in San Francisco is eat a sandwich and sit in Dolores Park on a sunny day.",
    "What is the best thing to do in San Francisco?",
    "eat a sandwich and sit in Dolores Park on a sunny day",
)
NEEDLES = {"passkey": PASSKEY, "sandwich": SANDWICH}


@dataclass(frozen=True)
class Hay:
    """The .txt files of a folder, plain or packed, by name; one file; or noise where there is no path."""

    path: Path | None = None
    seed: int = 0

    @cached_property
    def files(self) -> list[Path]:
        """The files in order of their names; InputError if there is nothing to read."""
        if self.path is None or self.path.is_file():
            return [self.path] if self.path else []
        found = sorted(file for packed in PACKED for file in self.path.glob(f"*.txt{packed}"))
        if not found:
            there = self.path.is_dir()
            wrong = f"{self.path} holds no .txt file" if there else f"there is no folder {self.path}"
            raise InputError(wrong, field="hay", remedy="name a folder with some, or none for noise")
        return found

    @cached_property
    def texts(self) -> tuple[str, ...]:
        """The texts in order of their names."""
        return tuple(map(_read, self.files)) or (passkey.NOISE,)

    @property
    def name(self) -> str:
        """The name in results."""
        return self.path.name if self.path else "noise"

    def bale(self, count: Count, tokens: int, trial: int) -> tuple[str, float]:
        """Return about that many tokens, to a sentence's end, and how often the whole hay is in them.

        The texts come in order, those before the first one at the end; each trial has another first.
        """
        order = list(range(len(self.texts)))
        random.Random(self.seed).shuffle(order)
        start, joint = order[trial % len(order)], "\n\n" if self.path else " "
        source = joint.join((*self.texts[start:], *self.texts[:start])) + joint
        size = _fitting(source, count, tokens)
        text = passkey.repeated(source, size + 1)  # one more, to see whether a sentence ends there
        return text[: boundary(text, size)], size / len(source)


@dataclass(frozen=True)
class NeedleTask(passkey.Trials):
    """Needles at every depth of hay of every length."""

    hay: Path | None = None  # a folder of .txt files, or one; noise where None
    needle: Needle = PASSKEY
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
        bale = cache(partial(self._hay.bale, count))  # counting tokens is slow, and depths share their hay
        for trial in self.each():
            yield self._example(*bale(trial.length - fixed, trial.trial), trial)

    def score(self, prediction: str, example: Example) -> float:
        """1 if the first number is the key, or if the answer is contained, whatever its case; else 0."""
        if self.needle.answer == _KEY:
            return passkey.first_number(prediction, example.answers[0])
        return float(example.answers[0].casefold() in prediction.casefold())

    def _example(self, hay: str, passes: float, trial: passkey.Trial) -> Example:
        needle = self.needle.with_key(passkey.draw(trial.seed))
        at = boundary(hay, int(trial.depth * len(hay)))
        text = _joined(needle.opening, hay[:at].strip(), needle.statement, hay[at:].strip())
        placed = {"hay_passes": round(passes, 3), "placed": round(at / max(1, len(hay)), 4)}
        facts = {**asdict(trial), "hay": self._hay.name, **placed}
        return Example(trial.id, text, needle.question, (needle.answer,), NEW_TOKENS, facts=facts)


def boundary(text: str, at: int) -> int:
    """Return the last end of a sentence at or before a position; of a word where there is none; else 0."""
    if at >= len(text):
        return len(text)
    for start in (max(0, at - _NEAR), 0):  # nearly always the first: a text may have millions of characters
        ends = [end.end() for end in _END.finditer(text, start, at + 1) if end.end() <= at]
        if ends:
            return ends[-1]
    return max(text.rfind(" ", 0, at + 1), 0)


def _fitting(source: str, count: Count, tokens: int) -> int:
    """Find how many characters make the tokens: that varies along a text, so measure and correct."""
    if tokens <= 0:
        return 0
    size = 4 * tokens
    for _ in range(_ROUNDS):
        found = max(1, count(passkey.repeated(source, size)))
        if 0.99 * tokens <= found <= tokens:
            break
        size = max(1, size * tokens // found)
    return size


def _read(path: Path) -> str:
    try:
        with open_file(path) as file:
            text = file.read().decode("utf-8").strip()
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8 text: convert it, or take it out of the hay") from error
    except DAMAGED as error:
        raise InputError(f"cannot read {path}: {error}") from error
    if not text:
        raise InputError(f"{path} has no text in it: take it out of the hay")
    return text


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
        *passkey.TASK.options,
        HAY,
        Option("needle", str, "passkey", "What is hidden.", metavar="passkey|sandwich|TEXT"),
        Option("question", str, None, "What is asked about a needle of your own."),
        Option("answer", str, None, "The right answer to that question."),
    ),
    _make,
    tables=("length", "depth"),
)
