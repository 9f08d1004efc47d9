"""RULER (Hsieh et al., 2024): its synthetic tasks, made on the spot at any length.

Wordings, numbers of needles and words, lengths of answers and scores are RULER's (NVIDIA/RULER, Apache-2.0).
Not as there: no text begins with a solved example; keys and words come from old books (`ruler_words.txt`);
documents that are too few for a length come again, all but the one with the answer.
"""

import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import cycle, islice
from pathlib import Path
from typing import Any

from infinipot.common.suggest import find
from infinipot.eval.tasks.jsonl import DATA, Row, built, find_files, read_rows
from infinipot.eval.tasks.needle import HAY, Hay, boundary
from infinipot.eval.tasks.passkey import LENGTHS, TRIALS
from infinipot.eval.tasks.synthetic import (
    CommonWords,
    Drawn,
    FrequentWords,
    Prompt,
    Synthetic,
    Trial,
    fitted,
    pairs,
)
from infinipot.eval.tasks.task import BadRow, Count, Example, Part, Several, TaskType
from infinipot.eval.tasks.variable_tracking import VariableTracking
from infinipot.recipes.option import Option

STATEMENT = "One of the special magic numbers for {key} is: {value}."
ONE = Prompt(
    "A special magic number is hidden within the following text. Make sure to memorize it. "
    "I will quiz you about the number afterwards.\n",
    "\n",
    "What is the special magic number for {asked} mentioned in the provided text?",
    " The special magic number for {asked} mentioned in the provided text is",
    128,
)
SEVERAL = Prompt(
    "Some special magic numbers are hidden within the following text. Make sure to memorize it. "
    "I will quiz you about the numbers afterwards.\n",
    "\n",
    "What are all the special magic numbers for {asked} mentioned in the provided text?",
    " The special magic numbers for {asked} mentioned in the provided text are",
    128,
)
_TO_DO = (
    "Answer the question based on the given documents. Only give me the answer and do not output any other "
    "words.\n\n"
)
DOCUMENTS = Prompt(
    f"{_TO_DO}The following are given documents.\n\n", f"\n\n{_TO_DO}Question: ", "{asked}", " Answer:", 32
)
Question = tuple[str, str, tuple[str, ...]]  # its paragraph, the question, the answers
HOW = 'save rows {"paragraph": ..., "questions": [{"question": ..., "answers": [...]}]} as squad.jsonl there'


@dataclass(frozen=True)
class Needles(Synthetic):
    """Numbers hidden in hay, each with the key that is asked for."""

    hay: Hay = field(default_factory=Hay)
    keys: int = 1  # in the text
    values: int = 1  # of each key
    asked: int = 1  # keys

    def __post_init__(self) -> None:
        _ = self.hay.files  # hay that is not there is told now, not in the middle of a run

    @property
    def prompt(self) -> Prompt:
        """The wording for one number or for several."""
        return ONE if self.asked * self.values == 1 else SEVERAL

    def draw(self, trial: Trial) -> Drawn:
        """Draw keys and their numbers."""
        source, keys = trial.source, pairs(trial.source, self.keys)
        values = iter(source.sample(range(1_000_000, 10_000_000), self.keys * self.values))
        hidden = [(key, str(value)) for key in keys for value in islice(values, self.values)]
        wanted = keys[: self.asked]
        answers = tuple(value for key, value in hidden if key in wanted)
        needles = [STATEMENT.format(key=key, value=value) for key, value in hidden]
        source.shuffle(needles)
        placed = list(zip(sorted(source.random() for _ in needles), needles, strict=True))
        asked = ", and ".join(filter(None, (", ".join(wanted[:-1]), wanted[-1])))
        return Drawn(asked, answers, partial(self._hide, placed, trial.number))

    def _hide(self, needles: list[tuple[float, str]], trial: int, count: Count, tokens: int) -> str:
        """Put needles, each on a line of its own, between sentences of hay."""
        lines = "".join(f"\n{needle}\n" for _, needle in needles)
        hay, _ = self.hay.bale(count, tokens - count(lines), trial)
        parts, start = [], 0
        for place, needle in needles:
            at = boundary(hay, int(place * len(hay)))
            parts += [hay[start:at].strip(), needle]
            start = at
        return "\n".join(filter(None, (*parts, hay[start:].strip())))


@dataclass(frozen=True)
class Questions(Synthetic):
    """Questions about one paragraph among others."""

    folder: Path | None = None
    prompt = DOCUMENTS

    def __post_init__(self) -> None:
        find_files(self.folder, "squad*.jsonl", HOW)  # missing files are told now

    @cached_property
    def rows(self) -> list[Question | BadRow]:
        """Every question as its paragraph, the question and the answers; and the rows that have none."""
        rows = (row for file in find_files(self.folder, "squad*.jsonl", HOW) for row in read_rows(file))
        every = built(rows, _questions)
        return [one for found in every for one in ([found] if isinstance(found, BadRow) else found)]

    def examples(self, count: Count) -> Iterator[Example | BadRow]:
        """Yield rows that cannot be used, then the examples length by length."""
        yield from (row for row in self.rows if isinstance(row, BadRow))
        if not all(isinstance(row, BadRow) for row in self.rows):
            yield from super().examples(count)

    def score(self, prediction: str, example: Example) -> float:
        """1 if one of the answers is contained, whatever its case, else 0."""
        return float(any(answer.lower() in prediction.lower() for answer in example.answers))

    def draw(self, trial: Trial) -> Drawn:
        """Take the trial's question, the same at every length, and shuffle the other paragraphs."""
        found = [row for row in self.rows if not isinstance(row, BadRow)]
        random.Random(self.seed).shuffle(found)
        paragraph, asked, answers = found[trial.number % len(found)]
        others = [other for other in dict.fromkeys(text for text, _, _ in found) if other != paragraph]
        trial.source.shuffle(others)
        build = partial(_documents, paragraph, others, trial.source.random())
        return Drawn(asked, answers, partial(fitted, build, 1))


def _questions(row: Row) -> list[Question]:
    paragraph, asked = row.text("paragraph", blank=False), row.rows("questions")
    return [(paragraph, each.text("question", blank=False), each.strings("answers")) for each in asked]


def _documents(paragraph: str, others: list[str], place: float, size: int) -> str:
    """Return that many numbered documents, the paragraph at its place among the others."""
    chosen = list(islice(cycle(others), size - 1))
    chosen.insert(round(place * len(chosen)), paragraph)
    return "\n\n".join(f"Document {number}:\n{text}" for number, text in enumerate(chosen, 1))


@dataclass(frozen=True)
class Ruler(Several):
    """The tasks that are asked for."""

    options: Mapping[str, Any] = field(default_factory=dict)

    def describe(self) -> dict[str, Any]:
        """Return the names of the tasks and what their examples depend on."""
        return {**super().describe(), **self.options}


def _make(options: Mapping[str, Any]) -> Ruler:
    hay = Hay(None if options["hay"] == "noise" else Path(options["hay"]).expanduser(), options["seed"])
    same = {name: options[name] for name in ("lengths", "trials", "seed")}
    needles = partial(Needles, hay=hay, **same)
    makers: dict[str, Callable[[], Part]] = {
        "niah-single": partial(needles, "niah-single"),
        "niah-multikey": partial(needles, "niah-multikey", keys=4),
        "niah-multivalue": partial(needles, "niah-multivalue", values=4),
        "niah-multiquery": partial(needles, "niah-multiquery", keys=4, asked=4),
        "variable-tracking": partial(VariableTracking, **same),
        "common-words": partial(CommonWords, "common-words", **same),
        "frequent-words": partial(FrequentWords, "frequent-words", **same),
        "qa": partial(Questions, "qa", folder=options["data"], **same),
    }
    names = options["tasks"] or [name for name in makers if name != "qa" or options["data"]]
    parts = [find("RULER task", name, makers, field="tasks")() for name in names]
    told = {"lengths": list(options["lengths"]), "trials": options["trials"], "hay": hay.name}
    return Ruler("ruler", parts, told)


TASK = TaskType(
    "ruler",
    "RULER's needles, chains, words and questions at any length.",
    (
        DATA,
        Option(
            "tasks",
            str,
            None,
            "niah-single, niah-multikey, niah-multivalue, niah-multiquery, variable-tracking, common-words, "
            "frequent-words, and qa where there is data.",
            many=True,
        ),
        LENGTHS,
        TRIALS,
        HAY,
    ),
    _make,
    catalyst="general",
)
