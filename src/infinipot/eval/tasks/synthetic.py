"""Texts of any length made of drawn parts, with a question after the text: RULER's tasks share this.

Two of the tasks are here whole: a list in which ten words come more often, and coded words of all ranks.
"""

import math
import random
import string
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from importlib.resources import files
from typing import NamedTuple

from infinipot.eval.tasks.passkey import LENGTHS, TRIALS
from infinipot.eval.tasks.task import BadRow, Count, Example

_ROUNDS, _FIRST = 6, 64
_AIM, _NEARLY = 0.995, 0.98  # shares of the tokens


class Prompt(NamedTuple):
    """The words around a text; `{asked}` stands for what is asked about."""

    opening: str  # before the text
    before: str  # after the text, before the question
    question: str
    lead: str  # into the answer
    new_tokens: int


class Trial(NamedTuple):
    """One text to be made: what draws its parts, its tokens, and its number among those of the length."""

    source: random.Random
    length: int
    number: int


class Drawn(NamedTuple):
    """What is asked about, the right answers, and a function that makes a text of a number of tokens."""

    asked: str
    answers: tuple[str, ...]
    text: Callable[[Count, int], str]


@dataclass(frozen=True)
class Synthetic(ABC):
    """Some trials of every length, each with a text of its own and one question after the text."""

    name: str
    lengths: tuple[int, ...] = LENGTHS.default
    trials: int = TRIALS.default
    seed: int = 0

    @property
    @abstractmethod
    def prompt(self) -> Prompt:
        """The words around the text."""

    @abstractmethod
    def draw(self, trial: Trial) -> Drawn:
        """Draw what a trial is about."""

    def examples(self, count: Count) -> Iterator[Example | BadRow]:
        """Yield the examples length by length."""
        for length in self.lengths:
            for trial in range(self.trials):
                yield self._example(count, length, trial)

    def score(self, prediction: str, example: Example) -> float:
        """Return the share of the answers that are contained, whatever their case."""
        return sum(answer.lower() in prediction.lower() for answer in example.answers) / len(example.answers)

    def _example(self, count: Count, length: int, trial: int) -> Example:
        prompt, source = self.prompt, random.Random(f"{self.name} {length} {trial} {self.seed}")
        drawn = self.draw(Trial(source, length, trial))
        query, lead = (words.format(asked=drawn.asked) for words in (prompt.question, prompt.lead))
        question = f"{prompt.before}{query}{lead}"
        text = prompt.opening + drawn.text(count, length - count(prompt.opening) - count(question))
        return Example(
            id=f"{length}-{trial}",
            text=text,
            question=question,
            answers=drawn.answers,
            new_tokens=prompt.new_tokens,
            query=query,
            bare=True,
            facts={"length": length, "trial": trial},
        )


def fitted(build: Callable[[int], str], least: int, count: Count, tokens: int) -> str:
    """Return a text that nearly has `tokens`, and no more unless even the `least` number of parts has."""
    best = build(least)
    fixed, more = count(best), _FIRST  # more parts than the least
    for _ in range(_ROUNDS):  # tokens of a part vary, so measure and correct
        if more <= 0:
            break
        text = build(least + more)
        found = count(text)
        if found <= tokens and len(text) > len(best):
            best = text
        if found <= fixed or _NEARLY * tokens <= found <= tokens:
            break
        more = int(more * (_AIM * tokens - fixed) / (found - fixed))
    return best


COMMON = Prompt(
    "Below is a numbered list of words. In these words, some appear more often than others. "
    "Memorize the ones that appear most often.\n",
    "\nQuestion: ",
    "What are the 10 most common words in the above list?",
    " Answer: The top 10 words that appear most often in the list are:",
    120,
)
FREQUENT = Prompt(
    "Read the following coded text and track the frequency of each coded word. "
    "Find the three most frequently appeared coded words. ",
    "\nQuestion: Do not provide any explanation. Please ignore the dots '....'. ",
    "What are the three most frequently appeared words in the above coded text?",
    " Answer: According to the coded text above, the three most frequently appeared words are:",
    50,
)
TEN = 10  # common words
SHORT = 4096  # tokens below which words come less often
LETTERS = 6  # of a coded word
LEAST = 100  # coded words, so that the first three come more often than the next


@dataclass(frozen=True)
class CommonWords(Synthetic):
    """A numbered list of words: ten come 30 times, the others 3 times; in a short text 6 times and once."""

    prompt = COMMON

    def draw(self, trial: Trial) -> Drawn:
        """Draw words; pairs of words where a list of the length needs more than there are."""
        source, length = trial.source, trial.length
        often, rarely = (6, 1) if length < SHORT else (30, 3)
        if length // (4 * rarely) < len(words()):  # an entry is a number, a dot and a word
            drawn = source.sample(words(), len(words()))
        else:
            drawn = pairs(source, TEN + length // (2 * rarely))
        build = partial(_numbered, drawn, often, rarely, source.random())
        return Drawn("", tuple(drawn[:TEN]), partial(fitted, build, TEN))


@dataclass(frozen=True)
class FrequentWords(Synthetic):
    """Coded words, the nth with a share of 1 / n²; the first are dots, the next three are asked for."""

    prompt = FREQUENT

    def draw(self, trial: Trial) -> Drawn:
        """Draw coded words."""
        letters = partial(trial.source.choices, string.ascii_lowercase, k=LETTERS)
        coded = dict.fromkeys("".join(letters()) for _ in range(max(10, trial.length // 50)))
        build = partial(_coded, ["...", *coded], trial.source.random())
        return Drawn("", tuple(coded)[:3], partial(fitted, build, LEAST))


@cache
def words() -> tuple[str, ...]:
    """Return English words, none of them a part of another."""
    return tuple((files("infinipot.eval.tasks") / "ruler_words.txt").read_text("utf-8").split())


def pairs(source: random.Random, size: int) -> list[str]:
    """Draw different pairs of words, such as needle-winter."""
    drawn = source.sample(range(len(words()) ** 2), size)
    return [f"{words()[one // len(words())]}-{words()[one % len(words())]}" for one in drawn]


def _numbered(drawn: list[str], often: int, rarely: int, seed: float, size: int) -> str:
    """Return a numbered list of the first ten words and of the others up to a number of words."""
    entries = drawn[:TEN] * often + drawn[TEN:size] * rarely
    random.Random(seed).shuffle(entries)
    return " ".join(f"{number}. {word}" for number, word in enumerate(entries, 1))


def _coded(coded: list[str], seed: float, size: int) -> str:
    """Return about that many words of all ranks."""
    share = 6 / math.pi**2  # of the first: all shares are 1 together
    entries = [word for rank, word in enumerate(coded, 1) for _ in range(int(size * share / rank**2))]
    random.Random(seed).shuffle(entries)
    return " ".join(entries)
