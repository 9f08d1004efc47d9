"""A whole comparison: ceilings, peers, recipes, parts of a cycle, documents; one document of results."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from infinipot.bench.benchmark import documents, machine, measured, versions
from infinipot.bench.plan import Plan
from infinipot.bench.subject import Subject, open_subject
from infinipot.bench.systems import Measurement, Pots, Transformers, engine
from infinipot.common.suggest import find
from infinipot.errors import ConfigError
from infinipot.hf.loading import choose_device, choose_dtype
from infinipot.hf.speed.prepare import resolve
from peers import llama, snapkv
from speed import side_by_side
from speed.ceilings import ceilings
from speed.cycle_parts import cycle_parts

PEERS = ("transformers", "transformers-static", "kvpress-snapkv", "llama.cpp")
DIFFERENT = 0.1  # a GGUF file may hold the embedding once or twice
Run = Generator[str | Measurement, None, dict[str, Any]]


@dataclass(frozen=True)
class Comparison(Plan):
    """A plan with everything that needs more than one's own machine and model."""

    chunk: tuple[int, int] | None = None  # new tokens on cached ones, side by side with peers
    rounds: int = 7
    shares: bool = True  # take a cycle apart too
    peers: tuple[str, ...] = ()
    kvpress: str = ""  # an interpreter that has kvpress
    llama: str = ""  # an interpreter that has llama-cpp-python; ours if empty
    gguf: str = ""  # the file llama.cpp reads

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in self.peers:
            find("peer", name, dict.fromkeys(PEERS, name), field="peers")
        if self.chunk and len(self.cycling()) < len(self.made()):
            raise ConfigError("a recipe has no cycle to measure", field="recipe")


def peers_on(device: str) -> tuple[str, ...]:
    """Return the peers that make sense: compiling takes minutes on a CPU, llama.cpp is compared there."""
    cpu = choose_device(device).type == "cpu"
    return tuple(name for name in PEERS if name != ("transformers-static" if cpu else "llama.cpp"))


def run(plan: Comparison) -> Run:
    """Measure everything the plan names; yield what is being done, and rows as they are finished."""
    before = torch.get_num_threads()
    torch.set_num_threads(plan.threads or before)
    try:
        return (yield from _run(plan))
    finally:
        torch.set_num_threads(before)


def _run(plan: Comparison) -> Run:
    device = choose_device(plan.device)
    yield "what the machine can do"
    bounds = ceilings(device, choose_dtype(resolve(plan.dtype, device)[0], device))
    theirs = yield from _passed(_others(plan))  # while this process holds no weights
    yield f"loading {plan.model or plan.random}"
    subject = open_subject(plan)
    about = {"command": list(plan.command), "versions": versions(), "machine": machine(subject)}
    theirs += yield from measured(_plain(plan, subject), plan)
    pairs = (yield from side_by_side.measure(plan, subject)) if plan.chunk else None
    ours = yield from measured((Pots(subject, recipe) for recipe in plan.made()), plan)
    shares = (yield from _shares(plan, subject)) if plan.lengths and plan.shares else []
    several: list[dict[str, Any]] = []
    for recipe in plan.cycling() if plan.documents else []:
        several += yield from documents(subject, recipe, plan)
    return {
        **about,
        "model": subject.describe(),
        "ceilings": {name: float(f"{value:.6g}") for name, value in bounds.items()},
        "recipes": [recipe.describe() for recipe in plan.made()],
        "rows": described([*ours, *theirs], subject, bounds),
        "shares": shares,
        "documents": several,
        "side_by_side": pairs,
    }


def _others(plan: Comparison) -> Iterator[str | Measurement]:
    """Peers in interpreters of their own."""
    for peer in (llama, snapkv):
        if peer.NAME in plan.peers and plan.lengths:
            yield from peer.measure(plan)


def _plain(plan: Comparison, subject: Subject) -> Iterator[Transformers]:
    """Peers in this interpreter, on the very same weights."""
    if "transformers" in plan.peers and not subject.held:
        yield Transformers(subject)
    if "transformers-static" in plan.peers:
        from peers.static import Static

        yield Static(subject)


def _passed(found: Iterator[str | Measurement]) -> Generator[str | Measurement, None, list[Measurement]]:
    rows = []
    for one in found:
        yield one
        if isinstance(one, Measurement):
            rows.append(one)
    return rows


def _shares(plan: Comparison, subject: Subject) -> Generator[str, None, list[dict[str, Any]]]:
    """Return the parts of a cycle of every recipe that has one."""
    found = []
    for recipe in plan.cycling():
        subject.sweep()
        reader, sizes = subject.reader(recipe), recipe.config
        parts = yield from cycle_parts(reader, subject.text(sizes.capacity), plan.rounds)
        about = {"system": recipe.preset.name, "capacity": sizes.capacity, "keep": sizes.kept}
        found.append({**about, "engine": engine(reader), **parts.describe()})
    return found


def described(rows: list[Measurement], subject: Subject, bounds: dict[str, float]) -> list[dict[str, Any]]:
    """Return rows as JSON-ready data, with their shares of what the machine can do."""
    beside = {row.length: row for row in rows if row.system == "transformers"}
    return [_described(row, beside.get(row.length) if row.ours else None, subject, bounds) for row in rows]


def _described(
    row: Measurement, beside: Measurement | None, subject: Subject, bounds: dict[str, float]
) -> dict[str, Any]:
    found = row.describe(beside)
    found["weight_bytes"] = found.get("weight_bytes") or (None if row.failed else subject.weight_bytes)
    parameters = found.setdefault("parameters", None) or subject.parameters
    if abs(parameters / subject.parameters - 1) > DIFFERENT:
        found["note"] = f"another model, of {parameters / 1e6:,.0f} million parameters; {row.note}"
    flops = 2 * parameters * row.length / 1e12 / row.reading_s if row.reading_s else None
    floor = found["weight_bytes"] / bounds["copy_gb_s"] / 1e6 if found["weight_bytes"] else None
    shares = {
        "matmul_share": flops and flops / bounds["matmul_tflops"],
        "matmul_share_sustained": flops and flops / bounds["matmul_tflops_sustained"],
        "copy_share": floor / row.decode_ms if floor and row.decode_ms else None,
    }
    return found | {name: value and float(f"{value:.6g}") for name, value in shares.items()}
