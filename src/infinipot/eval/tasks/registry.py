"""Every task by name: a module of this folder is one if it declares a `TaskType` called `TASK`.

A new task is one new file here: the command line, the runner and the report find it by its declaration.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

import infinipot.eval.tasks
from infinipot.common.suggest import find
from infinipot.errors import ConfigError
from infinipot.eval.tasks.task import Task, TaskType
from infinipot.recipes.option import Option

GROUP = "Task"


@cache
def tasks() -> Mapping[str, TaskType]:
    """Return every declared task by its name."""
    package = infinipot.eval.tasks
    modules = (import_module(f"{package.__name__}.{one.name}") for one in iter_modules(package.__path__))
    found = (getattr(module, "TASK", None) for module in modules)
    return {one.name: one for one in found if isinstance(one, TaskType)}


def make(name: str, given: Mapping[str, Any], seed: int = 0) -> Task:
    """Return the task of that name with the options that were given, texts or values.

    An option that is None counts as not given; one that only other tasks take is refused.
    """
    task = find("task", name, tasks(), field="task")
    mine = {option.name: option for option in task.options}
    for option, value in given.items():
        if value is not None and option not in mine:
            others = (one.name for one in tasks().values() for its in one.options if its.name == option)
            whose = " and ".join(others) or "no task"
            raise ConfigError(f"`{option}` is for {whose}", field=option, remedy=f"leave it out for {name}")
    values = {name: _value(option, given.get(name)) for name, option in mine.items()}
    return task.make({**values, "seed": seed})


def _value(option: Option, given: Any) -> Any:
    """Return the value of an option; a list is a text with commas, each part read by the option."""
    if given is None:
        return () if option.many and option.default is None else option.default
    if isinstance(given, str):
        return option.parse_list(given) if option.many else option.parse(given)
    for value in given if option.many else [given]:
        option.check(value)
    return tuple(given) if option.many else given


@cache
def task_options() -> tuple[Option, ...]:
    """Return every option of every task once, as a person types it: a list is one text with commas."""
    found: dict[str, list[tuple[str, Option]]] = {}
    for task in tasks().values():
        for option in task.options:
            found.setdefault(option.name, []).append((task.name, option))
    return tuple(map(_merged, found.values()))


def _merged(found: list[tuple[str, Option]]) -> Option:
    """Return the one option of several tasks that share its name; its help says which task means what."""
    helps: dict[str, list[str]] = {}
    for task, option in found:
        helps.setdefault(option.help.removesuffix("."), []).append(task)
    told = "; ".join(f"{text} ({', '.join(names)})" for text, names in helps.items())
    first, *others = (option.listed(GROUP) if option.many else option for _, option in found)
    if any((one.kind, one.choices) != (first.kind, first.choices) for one in others):
        raise TypeError(f"tasks disagree on what kind of thing `{first.name}` is")
    defaults = {option.shown or _shown(option.default) for _, option in found}
    shown = defaults.pop() if len(defaults) == 1 else "the task's"
    # Bounds are checked by the task's own declaration, and a list's part by part.
    plain = replace(first, default=None, group=GROUP, many=False, least=None, most=None)
    return replace(plain, help=f"{told}.", shown=shown)


def _shown(default: Any) -> str:
    if default is None:
        return "none"
    return ",".join(map(str, default)) if isinstance(default, tuple) else str(default)
