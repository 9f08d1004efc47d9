"""LoCoMo (Maharana et al., 2024): questions about a conversation of two people over many months.

A file is the official JSON list (`locomo10.json`). Every turn is one line with the date and time of its
session, as exported chats have it. Scores are LoCoMo's (snap-research/locomo) but for two things: words are
not stemmed, and "and" is a word like others. An adversarial question offers no choice of answers here.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

from infinipot.errors import ConfigError
from infinipot.eval.tasks import metrics
from infinipot.eval.tasks.jsonl import DATA, Row, RowError, built, find_files, from_rows, read_list
from infinipot.eval.tasks.task import BadRow, Count, Example, TaskType
from infinipot.recipes.option import Option

HOW = "get locomo10.json of https://github.com/snap-research/locomo and name its folder"
MULTI_HOP, OPEN_DOMAIN, ADVERSARIAL = "multi-hop", "open-domain", "adversarial"
NAMES = {1: MULTI_HOP, 2: "temporal", 3: OPEN_DOMAIN, 4: "single-hop", 5: ADVERSARIAL}
_KINDS = "1 multi-hop, 2 temporal, 3 open-domain, 4 single-hop; 5 adversarial, alone."
CATEGORIES = Option("categories", int, (1, 2, 3, 4), _KINDS, least=1, most=5, many=True)
HINT = " Answer in a few words."
NEW_TOKENS = 32
NOT_MENTIONED = "not mentioned"  # the right answer to an adversarial question
_UNKNOWN = re.compile(r"(\bnot|n['’]t)( \w+)? mention|\bno( \w+)? (mention|information)")
_SESSION = re.compile(r"session_(\d+)")


@dataclass(frozen=True)
class LoCoMo:
    """The questions of some categories, conversation by conversation."""

    folder: Path | None
    categories: tuple[int, ...] = CATEGORIES.default
    name: str = "locomo"

    def __post_init__(self) -> None:
        if 5 in self.categories and len(self.categories) > 1:
            problem = "category 5 is scored in another way and enters no average with others"
            raise ConfigError(problem, field="categories", remedy="ask for 5 alone")
        self.files()  # missing files are told now, not in the middle of a run

    def describe(self) -> dict[str, Any]:
        """Return what the examples depend on."""
        return {"categories": list(self.categories)}

    def files(self) -> list[Path]:
        """Return the files with conversations."""
        return find_files(self.folder, "locomo*.json", HOW)

    def examples(self, count: Count) -> Iterator[Example | BadRow]:  # noqa: ARG002 - texts have their length
        """Yield the questions of one conversation after the other."""
        for found in built((row for file in self.files() for row in read_list(file)), _conversation):
            if isinstance(found, BadRow):
                yield found
            else:
                name, text, questions = found
                yield from from_rows(self._asked(name, questions), partial(_example, name, text))

    def score(self, prediction: str, example: Example) -> float:
        """Return the token F1; over the parts of a multi-hop answer; 1 or 0 for an adversarial question."""
        category, (answer,) = example.facts["task"], example.answers
        if category == ADVERSARIAL:
            return float(bool(_UNKNOWN.search(prediction.lower())))
        if category != MULTI_HOP:
            return metrics.f1(prediction, answer)
        said = prediction.split(",")
        return fmean(max(metrics.f1(part, wanted) for part in said) for wanted in answer.split(","))

    def _asked(self, name: str, questions: list[Row]) -> Iterator[Row]:
        """Yield the questions that are asked for, and damaged ones; a question's place is the row's line."""
        left_out = [category for category in NAMES if category not in self.categories]
        for place, row in enumerate(questions, 1):
            if row.fields.get("category") not in left_out:
                yield replace(row, file=f"{row.file}, {name}", line=place)


def _conversation(row: Row) -> tuple[str, str, list[Row]]:
    return row.text("sample_id", blank=False), conversation(row), row.rows("qa")


def conversation(row: Row) -> str:
    """Return a conversation as text: a line a turn, an empty line between sessions."""
    talk = row.row("conversation")
    numbers = sorted(int(found[1]) for name in talk.fields if (found := _SESSION.fullmatch(name)))
    sessions = [_session(talk, f"session_{number}") for number in numbers if talk.fields[f"session_{number}"]]
    if not sessions:
        raise RowError("'conversation' has no session")
    return "\n\n".join(sessions)


def _session(talk: Row, name: str) -> str:
    date = talk.text(f"{name}_date_time", blank=False)
    return "\n".join(f"[{date}] {_turn(turn)}" for turn in talk.rows(name))


def _turn(turn: Row) -> str:
    photo = f" [photo: {turn.text('blip_caption')}]" if "blip_caption" in turn.fields else ""
    return " ".join(f"{turn.text('speaker', blank=False)}: {turn.text('text')}{photo}".split())


def _example(name: str, text: str, row: Row) -> Example:
    category = NAMES.get(row.integer("category"))
    if category is None:
        raise RowError("'category' should be 1 to 5")
    asked, facts = row.text("question", blank=False).strip(), {"task": category, "conversation": name}
    return Example(
        id=f"{name}-{row.line}",
        text=text,
        question=asked + HINT,
        answers=(_answer(row, category),),
        new_tokens=NEW_TOKENS,
        query=asked,
        facts=facts,
        shared=True,
    )


def _answer(row: Row, category: str) -> str:
    if category == ADVERSARIAL:
        return NOT_MENTIONED
    if isinstance(row.fields.get("answer"), int):  # a year
        return str(row.integer("answer"))
    answer = row.text("answer", blank=False).strip()
    return answer.partition(";")[0].strip() if category == OPEN_DOMAIN else answer


TASK = TaskType(
    "locomo",
    "Questions about a long conversation, read once.",
    (DATA, CATEGORIES),
    lambda options: LoCoMo(options["data"], options["categories"]),
    catalyst="general",
    tables=("task",),
)
