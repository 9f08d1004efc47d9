"""What an evaluation is made of: examples to read and ask about, and how an answer is scored.

Tasks know neither tensors nor models. A new task is one new file of this folder with a `TaskType` called
`TASK`: the command line, the runner and the report find the task by that declaration.
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import Any, Protocol

from infinipot.common.suggest import find
from infinipot.errors import ConfigError
from infinipot.eval import tasks as package
from infinipot.recipes.option import Option

GROUP = "Task"
ALL, TUNE, REPORT = PARTS = ("all", "tune", "report")
Count = Callable[[str], int]  # tokens of a text


def half(text: str) -> str:
    """Say which half of a set something belongs to: a hash decides, the same one in every run."""
    return (TUNE, REPORT)[hashlib.sha256(text.encode()).digest()[0] % 2]


@dataclass(frozen=True)
class Example:
    """One text, one question, and the right answers."""

    id: str  # the same in every run, and of no other example of the task
    text: str  # goes into the pot
    question: str  # follows the text
    answers: tuple[str, ...]
    new_tokens: int
    query: str = ""  # what the question catalyst (CaP-Q) asks; the question where empty
    bare: bool = False  # text and question are a whole prompt; else the prompt format puts words between
    chat: bool | None = None  # whether they go into the model's chat template; None leaves that to the model
    one_line: bool = False  # the answer ends at a newline, after at least one token
    classes: tuple[str, ...] = ()  # the answer is one of these, where there are any
    facts: Mapping[str, str | int | float] = field(default_factory=dict)  # length, depth, ...: go into rows
    shared: bool = False  # further examples have the same text, which is read once


@dataclass(frozen=True)
class BadRow:
    """A row that is no example: where the row is and what is wrong with it."""

    file: str
    line: int  # the first is 1
    reason: str

    def __str__(self) -> str:
        return f"{self.file}, line {self.line}: {self.reason}"


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
    """What a task's file declares as `TASK`: all that the command line, the runner and the report need."""

    name: str
    help: str
    options: tuple[Option, ...]
    make: Callable[[Mapping[str, Any]], Task]  # gets a value for each option, and the `seed`
    catalyst: str = "question"  # where the user names none
    tables: tuple[str, ...] = ("task", "length")  # of a report, by their names in `eval/tables.py`

    @property
    def knows_halves(self) -> bool:
        """Whether the task parts its material itself; else its examples are parted by their names."""
        return any(option.name == "part" for option in self.options)


@dataclass(frozen=True)
class Several:
    """Several tasks as one, as LongBench is 21; `task` in an example's facts names the part."""

    name: str
    parts: Sequence[Part]

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


@cache
def tasks() -> Mapping[str, TaskType]:
    """Return every declared task by its name."""
    modules = (import_module(f"{package.__name__}.{one.name}") for one in iter_modules(package.__path__))
    found = (getattr(module, "TASK", None) for module in modules)
    return {one.name: one for one in found if isinstance(one, TaskType)}


def make(name: str, given: Mapping[str, Any], seed: int = 0) -> Task:
    """Return a task with options as texts or values; None is not given, one of other tasks is refused."""
    task = find("task", name, tasks(), field="task")
    values = {option.name: _value(option, given.get(option.name)) for option in task.options}
    for option, value in given.items():
        if value is not None and option not in values:
            others = (one.name for one in tasks().values() for its in one.options if its.name == option)
            whose = " and ".join(others) or "no task"
            raise ConfigError(f"`{option}` is for {whose}", field=option, remedy=f"leave it out for {name}")
    return task.make({**values, "seed": seed})


def _value(option: Option, given: Any) -> Any:
    """Return the value of an option; a list is a text with commas, each part read by the option."""
    if given is None:
        return () if option.many and option.default is None else option.default
    if isinstance(given, str):
        return option.parse_list(given) if option.many else option.parse(given)
    values = tuple(given) if option.many else (given,)
    for value in values:
        option.check(value)
    return values if option.many else given


@cache
def task_options() -> tuple[Option, ...]:
    """Return every option of every task once, as a person types it: a list is one text with commas."""
    declared = [(task.name, option) for task in tasks().values() for option in task.options]
    names = dict.fromkeys(option.name for _, option in declared)
    return tuple(_merged([(task, one) for task, one in declared if one.name == name]) for name in names)


def _merged(found: list[tuple[str, Option]]) -> Option:
    """Return the one option of several tasks that share its name; its help says which task means what."""
    helps: dict[str, list[str]] = {}
    for task, option in found:
        helps.setdefault(option.help.removesuffix("."), []).append(task)
    told = "; ".join(f"{text} ({', '.join(names)})" for text, names in helps.items())
    first, *others = (option.listed(GROUP) if option.many else option for _, option in found)
    if any((one.kind, one.choices) != (first.kind, first.choices) for one in others):
        raise TypeError(f"tasks disagree on what kind of thing `{first.name}` is")
    shown = {_shown(option) for _, option in found}
    # Bounds are checked by the task's own declaration, and a list's part by part.
    plain = replace(first, default=None, group=GROUP, many=False, least=None, most=None)
    return replace(plain, help=f"{told}.", shown=shown.pop() if len(shown) == 1 else "the task's")


def _shown(option: Option) -> str:
    default = option.default if isinstance(option.default, tuple) else (option.default,)
    return option.shown or ("none" if default == (None,) else ",".join(map(str, default)))
