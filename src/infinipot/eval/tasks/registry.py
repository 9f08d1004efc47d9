"""From a task's name and the options typed for it to a Task; an option of another task is refused."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from infinipot.errors import ConfigError, InputError
from infinipot.eval import lists
from infinipot.eval.grid import BY_TASK
from infinipot.eval.tasks.task import Task
from infinipot.reading.catalyst import QUESTION

ALL = "all"
_BABILONG = re.compile(r"(?P<length>\w+)_(?P<task>qa\d+)\.jsonl(\.xz|\.gz)?")


@dataclass(frozen=True)
class Wanted:
    """What was typed for a task; None where nothing was."""

    data: Path | None = None
    lengths: str | None = None
    depths: str | None = None
    trials: int | None = None
    tasks: str | None = None
    e: bool | None = None
    hay: str | None = None
    needle: str | None = None
    question: str | None = None
    answer: str | None = None

    def given(self) -> dict[str, Any]:
        """Return what was typed."""
        return {name: value for name, value in asdict(self).items() if value is not None}


@dataclass(frozen=True)
class Made:
    """A task, the options its examples depend on, and the catalyst it has where none is asked for."""

    task: Task
    options: dict[str, Any]
    catalyst: str = QUESTION


def make(name: str, wanted: Wanted, seed: int) -> Made:
    """Return the task of that name, or say which name or option is wrong."""
    if name not in _MAKERS:
        near = difflib.get_close_matches(name, _MAKERS, n=1)
        hint = f"did you mean '{near[0]}'?" if near else f"known: {', '.join(_MAKERS)}"
        raise ConfigError(f"unknown task '{name}'; {hint}")
    maker, takes = _MAKERS[name]
    for option in wanted.given():
        if option not in takes:
            whose = [other for other, (_, taken) in _MAKERS.items() if option in taken]
            raise ConfigError(f"--{option} is for {' and '.join(whose)}: leave it out for {name}")
    return maker(wanted, seed)


def _trials(wanted: Wanted, seed: int) -> dict[str, Any]:
    found: dict[str, Any] = {"seed": seed}
    if wanted.lengths:
        found["lengths"] = lists.several("lengths", wanted.lengths, lists.size, "sizes such as 8k or 1m")
    if wanted.depths:
        found["depths"] = lists.several("depths", wanted.depths, lists.share, "numbers from 0 to 1")
    if wanted.trials is not None:
        found["trials"] = wanted.trials
    return found


def _passkey(wanted: Wanted, seed: int) -> Made:
    from infinipot.eval.tasks.passkey import PasskeyTask

    task = PasskeyTask(**_trials(wanted, seed))
    return Made(task, _stated(task, "lengths", "depths", "trials"))


def _needle(wanted: Wanted, seed: int) -> Made:
    from infinipot.eval.tasks.needle import NEEDLES, Needle, NeedleTask

    hidden = wanted.needle or "passkey"
    if hidden in NEEDLES:
        if wanted.question or wanted.answer:
            raise ConfigError(f"--needle {hidden} has its own question and answer: leave them out")
        needle = NEEDLES[hidden]
    elif len(hidden.split()) < 2:
        raise ConfigError(
            f"unknown needle '{hidden}': use {', '.join(NEEDLES)} or a sentence of several words"
        )
    else:
        needle = Needle(hidden, wanted.question or "", wanted.answer or "")
    hay = None if wanted.hay in (None, "noise") else Path(str(wanted.hay)).expanduser()
    task = NeedleTask(hay, needle, **_trials(wanted, seed))
    stated = _stated(task, "lengths", "depths", "trials")
    return Made(task, {**stated, "hay": hay.name if hay else "noise", "needle": needle.statement})


def _longbench(wanted: Wanted, seed: int) -> Made:  # noqa: ARG001  nothing is drawn
    from infinipot.eval.tasks.longbench import LongBench, names
    from infinipot.eval.tasks.several import Several

    asked = lists.parts(wanted.tasks or "")
    if asked and asked != [ALL]:
        chosen = [LongBench(f"{n}_e" if wanted.e and not n.endswith("_e") else n, wanted.data) for n in asked]
    else:
        some = [n for n in names() if asked == [ALL] or n.endswith("_e") == bool(wanted.e)]
        chosen = list(_there(some, wanted.data))
    task = Several("longbench", tuple(chosen))
    return Made(task, {"tasks": [one.name for one in chosen]}, BY_TASK)


def _there(names: list[str], folder: Path | None) -> Iterator[Any]:
    """Yield the LongBench tasks that the folder has rows of; all of them where rows come from the hub."""
    from infinipot.eval.tasks.longbench import LongBench

    missing: InputError | None = None
    found = False
    for name in names:
        try:
            task = LongBench(name, folder)
            if folder is not None:
                next(task.examples(len))
        except InputError as error:
            missing = missing or error
        else:
            found = True
            yield task
    if missing and not found:
        raise missing


def _babilong(wanted: Wanted, seed: int) -> Made:  # noqa: ARG001
    from infinipot.eval.tasks.babilong import HOW, BABILong
    from infinipot.eval.tasks.several import Several

    folder = _folder(wanted, HOW)
    matches = (_BABILONG.fullmatch(path.name) for path in folder.iterdir())
    there = sorted({(match["length"], match["task"]) for match in matches if match}, key=_by_length)
    lengths = lists.parts(wanted.lengths or "") or list(dict.fromkeys(length for length, _ in there))
    tasks = lists.parts(wanted.tasks or "") or sorted({task for _, task in there})
    names = [f"{length}_{task}" for length in lengths for task in tasks]
    if not names:
        raise InputError(f"{folder} has no BABILong files: {HOW}")
    return Made(Several("babilong", tuple(BABILong(name, folder) for name in names)), {"tasks": names})


def _by_length(one: tuple[str, str]) -> tuple[float, str]:
    digits, unit = re.sub(r"\D", "", one[0]), one[0][-1:].lower()
    return float(digits or 0) * {"k": 1e3, "m": 1e6}.get(unit, 1), one[1]


def _kv_retrieval(wanted: Wanted, seed: int) -> Made:  # noqa: ARG001
    from infinipot.eval.tasks.kv_retrieval import HOW, KVRetrieval
    from infinipot.eval.tasks.several import Several

    folder = _folder(wanted, HOW)
    names = lists.parts(wanted.tasks or "") or ["kv_75_keys"]
    task = Several("kv-retrieval", tuple(KVRetrieval(folder, name) for name in names))
    return Made(task, {"tasks": names})


def _folder(wanted: Wanted, how: str) -> Path:
    if wanted.data is None:
        raise InputError(f"this task needs its data, --data DIR: {how}")
    if not wanted.data.is_dir():
        raise InputError(f"there is no folder {wanted.data}: {how}")
    return wanted.data


def _stated(task: Any, *names: str) -> dict[str, Any]:
    """What the task will do, said in the manifest's terms."""
    known = {field.name: getattr(task, field.name) for field in fields(task)}
    return {n: list(known[n]) if isinstance(known[n], tuple) else known[n] for n in names}


_TRIALS = frozenset({"lengths", "depths", "trials"})
_MAKERS: dict[str, tuple[Callable[[Wanted, int], Made], frozenset[str]]] = {
    "passkey": (_passkey, _TRIALS),
    "needle": (_needle, _TRIALS | {"hay", "needle", "question", "answer"}),
    "longbench": (_longbench, frozenset({"data", "tasks", "e"})),
    "babilong": (_babilong, frozenset({"data", "tasks", "lengths"})),
    "kv-retrieval": (_kv_retrieval, frozenset({"data", "tasks"})),
}
TASKS = tuple(_MAKERS)
