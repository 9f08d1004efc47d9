"""A whole run: ceilings, peers, ours, the parts of a cycle, several documents; one document of results.

Yields signs of life and finished rows; the last word is the JSON-ready document.
"""

from __future__ import annotations

import platform
from collections.abc import Generator
from importlib.metadata import PackageNotFoundError, version
from typing import Any, cast

import torch

from infinipot import __version__
from infinipot.bench import documents, ours, peers, side_by_side
from infinipot.bench.ceilings import ceilings
from infinipot.bench.clock import threads
from infinipot.bench.plan import Plan, shown
from infinipot.bench.rows import Row
from infinipot.bench.shares import cycle_parts
from infinipot.bench.steps import Step
from infinipot.bench.subject import Subject, open_subject, text
from infinipot.hf.loading import choose_device, choose_dtype
from infinipot.hf.speed.prepare import resolve
from infinipot.models import memory
from infinipot.recipes.recipe import Recipe

Run = Generator[Step | Row, None, dict[str, Any]]


def run(plan: Plan) -> Run:
    """Measure everything the plan names."""
    with threads(plan.threads):
        return (yield from _run(plan))


def _run(plan: Plan) -> Run:
    device = choose_device(plan.device)
    yield Step("what the machine can do")
    bounds = ceilings(device, choose_dtype(resolve(plan.dtype, device)[0], device))
    theirs = yield from _rows(peers.before(plan)) if plan.lengths else _rows(iter(()))
    yield Step(f"loading {plan.name}")
    subject = open_subject(plan)
    machine = _machine(subject)
    theirs += yield from _rows(peers.beside(plan, subject)) if plan.lengths else _rows(iter(()))
    pairs = (yield from side_by_side.measure(plan, subject)) if plan.chunk else None
    rows = yield from _ours(plan, subject)
    shares = (yield from _shares(plan, subject)) if plan.lengths and plan.shares else []
    several = (yield from _documents(plan, subject)) if plan.documents else []
    return {
        "command": list(plan.command),
        "versions": versions(),
        "machine": machine,
        "model": subject.describe(),
        "ceilings": {name: float(f"{value:.6g}") for name, value in bounds.items()},
        "recipes": [recipe.describe() for recipe in plan.made()],
        "rows": [row.describe(subject.parameters, bounds) for row in [*rows, *theirs]],
        "shares": shares,
        "documents": several,
        "side_by_side": pairs,
    }


def _rows(found: Any) -> Generator[Step | Row, None, list[Row]]:
    """Pass everything on, and keep the rows."""
    rows = []
    for one in found:
        yield one
        if isinstance(one, Row):
            rows.append(one)
    return rows


def _ours(plan: Plan, subject: Subject) -> Generator[Step | Row, None, list[Row]]:
    rows: list[Row] = []
    for recipe in plan.made() if plan.lengths else []:
        rows += yield from _rows(ours.measure(subject, recipe, plan.lengths, plan.new_tokens))
    return rows


def _shares(plan: Plan, subject: Subject) -> Generator[Step, None, list[dict[str, Any]]]:
    """The parts of a cycle of every recipe that has one."""
    found = []
    for recipe in _cycling(plan):
        subject.memory.sweep()
        reader = subject.reader(recipe)
        name, sizes = recipe.preset.name, recipe.config
        yield Step(f"{name} {shown(sizes.capacity)}: parts of a cycle")
        parts = yield from cycle_parts(reader, text(sizes.capacity, subject.vocabulary), plan.rounds)
        entry = {
            "system": name,
            "capacity": sizes.capacity,
            "keep": sizes.kept,
            "engine": ours.engine(reader),
        }
        found.append({**entry, **parts.describe()})
    return found


def _documents(plan: Plan, subject: Subject) -> Generator[Step, None, list[dict[str, Any]]]:
    found: list[dict[str, Any]] = []
    for recipe in _cycling(plan):
        found += yield from documents.measure(subject, recipe, plan.documents, plan.new_tokens)
    return found


def _cycling(plan: Plan) -> list[Recipe]:
    return [recipe for recipe in plan.made() if recipe.preset.policy and recipe.preset.bounded]


def versions() -> dict[str, str]:
    """Versions of all that matters for speed."""
    found = {"infinipot": __version__, "python": platform.python_version()}
    for name in ("torch", "transformers", "triton"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def _machine(subject: Subject) -> dict[str, Any]:
    device = subject.device
    found: dict[str, Any] = {"device": str(device), "threads": torch.get_num_threads()}
    if device.type == "cuda":
        about = cast("Any", torch.cuda.get_device_properties(device))
        return {**found, "name": about.name, "memory_bytes": about.total_memory}
    return {
        **found,
        "name": platform.processor() or platform.machine(),
        "memory_bytes": memory.available() + subject.weight_bytes,
    }
