"""What an evaluation is made of: examples to read and ask about, and how an answer is scored.

Tasks know neither tensors nor models; lengths are counted by the function that a task is given.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

from infinipot.errors import ConfigError
from infinipot.recipes.option import Option

if TYPE_CHECKING:
    from infinipot.eval.tasks.jsonl import BadRow

Count = Callable[[str], int]  # tokens of a text


@dataclass(frozen=True)
class Example:
    """One text, one question, and the right answers.

    `bare` means that text and question are a complete prompt as they are; otherwise the
    prompt format puts its own words between them. `chat` says whether they go into the
    model's chat template; None leaves that to the model.
    """

    id: str  # the same in every run, and of no other example of the task
    text: str  # goes into the pot
    question: str  # follows the text
    answers: tuple[str, ...]
    new_tokens: int
    query: str = ""  # what the question catalyst (CaP-Q) asks; the question where empty
    bare: bool = False
    chat: bool | None = None
    one_line: bool = False  # the answer ends at a newline, after at least one token
    classes: tuple[str, ...] = ()  # the answer is one of these, where there are any
    facts: Mapping[str, str | int | float] = field(default_factory=dict)  # length, depth, ...: go into rows


class Part(Protocol):
    """A named set of examples: a task, or one of several that make a task."""

    @property
    def name(self) -> str:
        """The task's name in rows and reports."""

    def examples(self, count: Count) -> Iterator[Example | BadRow]:
        """Yield the examples, always the same ones in the same order; a row that makes none says why."""

    def score(self, prediction: str, example: Example) -> float:
        """From 0, wrong, to 1, right."""


class Task(Part, Protocol):
    """What is evaluated."""

    def describe(self) -> dict[str, Any]:
        """Return what the examples depend on, as JSON-ready data for the manifest."""


@dataclass(frozen=True)
class TaskType:
    """What a task's file declares as `TASK`: all that the command line, the runner and the report need.

    make      gets a value for each option, and the `seed`.
    catalyst  the catalyst where the user names none.
    tables    the tables of a report, by their names in `eval/tables.py`.
    """

    name: str
    help: str
    options: tuple[Option, ...]
    make: Callable[[Mapping[str, Any]], Task]
    catalyst: str = "question"
    tables: tuple[str, ...] = ("task", "length")


@dataclass(frozen=True)
class Several:
    """Several tasks as one, as LongBench is 21; `task` in an example's facts names the part."""

    name: str
    parts: tuple[Part, ...]

    def __post_init__(self) -> None:
        names = self.describe()["tasks"]
        if not names or len(set(names)) < len(names):
            raise ConfigError(f"{self.name} needs tasks of different names, not {', '.join(names) or 'none'}")

    def describe(self) -> dict[str, Any]:
        """Return the names of the parts."""
        return {"tasks": [part.name for part in self.parts]}

    def examples(self, count: Count) -> Iterator[Example | BadRow]:
        """Yield the examples of one part after the other."""
        for part in self.parts:
            for found in part.examples(count):
                if isinstance(found, Example):
                    facts = {**found.facts, "task": part.name}
                    found = replace(found, id=f"{part.name}/{found.id}", facts=facts)
                yield found

    def score(self, prediction: str, example: Example) -> float:
        """Score as the example's own task does."""
        (part,) = (part for part in self.parts if part.name == example.facts["task"])
        return part.score(prediction, example)
