"""What people would use instead: the same weights, lengths and columns; a peer that cannot says why."""

from __future__ import annotations

from collections.abc import Generator

from infinipot.bench.plan import Plan
from infinipot.bench.rows import Row
from infinipot.bench.steps import Step
from infinipot.bench.subject import Subject


def before(plan: Plan) -> Generator[Step | Row, None, None]:
    """Peers in interpreters of their own; they run while this one holds no weights."""
    from infinipot.bench.peers import llama, snapkv

    if "llama.cpp" in plan.peers:
        yield from llama.measure(plan)
    if "kvpress-snapkv" in plan.peers:
        yield from snapkv.measure(plan)


def beside(plan: Plan, subject: Subject) -> Generator[Step | Row, None, None]:
    """Peers in this interpreter, on the very same weights."""
    from infinipot.bench.peers import plain

    for name in ("transformers", "transformers-static"):
        if name in plan.peers:
            yield from plain.measure(plan, subject, name)
