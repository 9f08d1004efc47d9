"""A whole run: plain transformers, the recipes, several documents; one JSON-ready document of results."""

import platform
import statistics
import time
from collections.abc import Generator, Iterable
from importlib.metadata import version
from importlib.util import find_spec
from itertools import pairwise
from typing import Any, cast

import torch

from infinipot import __version__
from infinipot.bench.plan import SKIP, Plan
from infinipot.bench.subject import Subject, open_subject
from infinipot.bench.systems import QUESTION, WARM, Measurement, Pots, Transformers, read, reason, rows
from infinipot.models import memory
from infinipot.reading.answer import answer_all
from infinipot.reading.sampling import Generation
from infinipot.recipes.recipe import Recipe


def run(plan: Plan) -> Generator[str | Measurement, None, dict[str, Any]]:
    """Measure everything the plan names; yield what is being done, and rows as they are finished."""
    before = torch.get_num_threads()
    torch.set_num_threads(plan.threads or before)
    try:
        yield f"loading {plan.model or plan.random}"
        subject = open_subject(plan)
        about = {"command": list(plan.command), "versions": versions(), "machine": machine(subject)}
        plain = plan.transformers and not subject.held
        theirs = yield from measured([Transformers(subject)] if plain else [], plan)
        ours = yield from measured((Pots(subject, recipe) for recipe in plan.made()), plan)
        several: list[dict[str, Any]] = []
        for recipe in plan.cycling() if plan.documents else []:
            several += yield from documents(subject, recipe, plan)
    finally:
        torch.set_num_threads(before)
    beside = {row.length: row for row in theirs}
    told = [row.describe(beside.get(row.length) if row.ours else None) for row in [*ours, *theirs]]
    recipes = [recipe.describe() for recipe in plan.made()]
    return {**about, "model": subject.describe(), "recipes": recipes, "rows": told, "documents": several}


def measured(
    systems: Iterable[Pots | Transformers], plan: Plan
) -> Generator[str | Measurement, None, list[Measurement]]:
    """Return the rows of every system, yielding whatever they yield."""
    found = []
    for system in systems:
        for one in rows(system, plan):
            yield one
            if isinstance(one, Measurement):
                found.append(one)
    return found


def documents(subject: Subject, recipe: Recipe, plan: Plan) -> Generator[str, None, list[dict[str, Any]]]:
    """Return tokens a second of several documents answered at once, beside one answered by itself."""
    found: list[dict[str, Any]] = []
    for count in sorted({1, *plan.documents}):
        yield f"{recipe.preset.name}: {count} documents"
        row = {"system": recipe.preset.name, "capacity": recipe.config.capacity, "documents": count}
        subject.sweep()
        try:
            row["tokens_s"] = round(_tokens_s(subject, recipe, count, plan.new_tokens), 2)
            row["times_one"] = round(row["tokens_s"] / found[0]["tokens_s"], 3) if found else 1.0
        except Exception as error:  # out of memory, or a model that cannot: told in its row
            row["failed"] = reason(error)
        found.append(row)
        if "failed" in found[0]:
            break
    return found


def _tokens_s(subject: Subject, recipe: Recipe, count: int, new_tokens: int) -> float:
    """Tokens a second after the first few of every answer, from the median time for one token each."""
    readers = [subject.reader(recipe) for _ in range(count)]
    prompts = [subject.text(QUESTION, seed=2 + which) for which in range(count)]
    moments: list[float] = []
    for _ in range(2 if subject.device.type == "cuda" else 1):  # the first answer compiles and captures
        for which, reader in enumerate(readers):
            read(reader, subject.text(WARM * recipe.config.capacity, seed=100 + which))
        subject.synchronize()
        answers = answer_all(readers, prompts, Generation(new_tokens))
        moments = [time.perf_counter() for which, _ in answers if which == count - 1]
    steps = [after - before for before, after in pairwise(moments)]
    return count / statistics.median(steps[SKIP - 1 :])


def versions() -> dict[str, str]:
    """Return the versions of all that matters for speed."""
    known = [name for name in ("torch", "transformers", "triton", "llvmlite") if find_spec(name)]
    ours = {"infinipot": __version__, "python": platform.python_version()}
    return ours | {name: version(name) for name in known}


def machine(subject: Subject) -> dict[str, Any]:
    """Return the device's name, its memory and the number of threads."""
    device = subject.device
    found: dict[str, Any] = {"device": str(device), "threads": torch.get_num_threads()}
    if device.type == "cuda":
        about = cast("Any", torch.cuda.get_device_properties(device))
        return {**found, "name": about.name, "memory_bytes": about.total_memory}
    free = memory.available() + subject.weight_bytes
    return {**found, "name": platform.processor() or platform.machine(), "memory_bytes": free}
