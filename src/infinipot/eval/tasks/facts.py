"""Facts that are asked for after the reading: paragraphs or statements planted in books.

Facts come as JSON lines, `{"paragraph": ..., "questions": [{"question": ..., "answers": [...]}]}` or
`{"statement": ..., "question": ..., "answers": [...]}`. A text of length 0 is the right fact alone: the most
that a model can know. A hash parts the facts in two: `tune` to choose settings on, `report` for tables.
"""

import random
import re
import string
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from infinipot.errors import ConfigError
from infinipot.eval.tasks import passkey
from infinipot.eval.tasks.jsonl import DATA, Row, built, find_file, read_rows
from infinipot.eval.tasks.needle import Hay, boundary
from infinipot.eval.tasks.task import ALL, PARTS, BadRow, Count, Example, TaskType, half
from infinipot.recipes.option import Option

NEW_TOKENS = 32
BRIEFLY = " Answer in a few words."
HOW = "JSON lines with a paragraph and its questions, or a statement, a question and its answers"
LENGTHS = replace(passkey.LENGTHS, least=0)
PLANTED = Option("planted", int, 10, "Facts in one text.", least=1)
EACH = Option("each", int, 2, "Questions about each fact.", least=1)
TEXTS = Option("texts", int, 1, "Texts of each length, with other facts each.", least=1)
PART = Option("part", str, ALL, "Which half of the facts.", choices=PARTS)


@dataclass(frozen=True)
class Fact:
    """Something to be planted, and what is asked about it."""

    text: str
    asked: tuple[tuple[str, tuple[str, ...]], ...]  # questions and their right answers

    @property
    def part(self) -> str:
        """The half of the set the fact belongs to."""
        return half(self.text)


@dataclass(frozen=True)
class FactsTask:
    """Facts at random places of books, and questions about all of them after each reading."""

    data: Path | None = None
    hay: Path | None = None
    facts: str = "squad"
    lengths: tuple[int, ...] = LENGTHS.default
    planted: int = PLANTED.default
    each: int = EACH.default
    texts: int = TEXTS.default
    part: str = PART.default
    seed: int = 0
    name: str = "facts"

    def __post_init__(self) -> None:
        if self.hay is None and any(self.lengths):
            problem, remedy = "facts are planted in texts", "give `hay` a folder of books"
            raise ConfigError(problem, field="hay", remedy=remedy)
        _ = self._file, self._hay.files  # what is not there is told now, not in the middle of a run

    def describe(self) -> dict[str, Any]:
        """Return what the examples depend on."""
        sizes = {"planted": self.planted, "each": self.each, "texts": self.texts}
        hay = self._hay.name if any(self.lengths) else None
        return {"facts": self.facts, "part": self.part, "hay": hay, "lengths": list(self.lengths), **sizes}

    @cached_property
    def _file(self) -> Path:
        return find_file(self.data, [f"{self.facts}.jsonl"], HOW)

    @cached_property
    def _hay(self) -> Hay:
        return Hay(self.hay, self.seed)

    def examples(self, count: Count) -> Iterator[Example | BadRow]:
        """Yield the examples length by length, text by text."""
        known: list[Fact] = []
        for found in built(read_rows(self._file), _fact):
            if isinstance(found, BadRow):
                yield found
            else:
                known.append(found)
        known = [fact for fact in known if self.part in (ALL, fact.part) and fact.asked]
        random.Random(self.seed).shuffle(known)
        for length in self.lengths:
            for number in range(self.texts):
                chosen = known[number * self.planted :][: self.planted]
                yield from self._asked(count, length, number, chosen)

    def _asked(self, count: Count, length: int, number: int, chosen: list[Fact]) -> Iterator[Example]:
        text = self._text(count, length, number, chosen) if length else ""
        for place, fact in enumerate(chosen):
            for index, (question, answers) in enumerate(fact.asked[: self.each]):
                told = {"length": length, "text": number, "fact": place}
                name, hay = f"{length}-{number}-{place}-{index}", text or fact.text
                asked = question + BRIEFLY, answers, NEW_TOKENS, question
                yield Example(name, hay, *asked, facts=told, shared=bool(text))

    def _text(self, count: Count, length: int, number: int, chosen: list[Fact]) -> str:
        """Return a stretch of the books with the facts between its sentences, each a paragraph of its own."""
        room = length - sum(count(fact.text) + 2 for fact in chosen)
        if room < 0:
            problem = f"{len(chosen)} facts have {length - room:,} tokens, more than a text of {length:,}"
            raise ConfigError(problem, field="lengths", remedy="use longer `lengths`, or fewer `planted`")
        hay, _ = self._hay.bale(count, room, number)
        source = random.Random(f"{self.seed}-{length}-{number}")
        places = sorted(boundary(hay, source.randrange(len(hay) + 1)) for _ in chosen)
        parts, at = [], 0
        for place, fact in zip(places, chosen, strict=True):
            parts += [hay[at:place].strip(), fact.text]
            at = place
        return "\n\n".join(part for part in (*parts, hay[at:].strip()) if part)

    def score(self, prediction: str, example: Example) -> float:
        """1 if an answer is contained, whatever its case, articles and punctuation; else 0."""
        said = f" {_plain(prediction)} "
        return float(any(f" {_plain(answer)} " in said for answer in example.answers))


def _fact(row: Row) -> Fact:
    if "statement" in row.fields:
        question = row.text("question", blank=False)
        return Fact(row.text("statement", blank=False), ((question, row.strings("answers")),))
    asked = ((one.text("question", blank=False), one.strings("answers")) for one in row.rows("questions"))
    return Fact(row.text("paragraph", blank=False), tuple(asked))


def _plain(text: str) -> str:
    """A text as SQuAD compares it; an article that stands alone stays."""
    kept = "".join(" " if letter in string.punctuation else letter for letter in text.lower())
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", kept).split()) or " ".join(kept.split())


def _make(options: Mapping[str, Any]) -> FactsTask:
    hay = options["hay"]
    return FactsTask(**{**options, "hay": None if hay is None else Path(hay).expanduser()})


TASK = TaskType(
    "facts",
    "Facts planted in books, asked for after the reading.",
    (
        DATA,
        Option("hay", str, None, "Folder of books that facts are planted in.", metavar="DIR"),
        Option("facts", str, "squad", "Which facts: the name of a .jsonl file of the folder."),
        LENGTHS,
        PLANTED,
        EACH,
        TEXTS,
        PART,
    ),
    _make,
    catalyst="general",
    tables=("length",),
)
