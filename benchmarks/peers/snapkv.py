"""SnapKV of NVIDIA's kvpress, in an environment of its own (`--kvpress PYTHON`)."""

from __future__ import annotations

import time
from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from infinipot.common.sizes import short
from infinipot.hf.gguf import pull
from infinipot.hf.loading import choose_device, choose_dtype
from infinipot.hf.shapes import SHAPES
from infinipot.hf.speed.prepare import resolve
from infinipot.models import cache as store
from infinipot.models import catalog
from peers.measurement import PeerMeasurement, beyond, median_ms
from peers.worker import PeerError, Worker, interpreter

if TYPE_CHECKING:
    from speed.comparison import Comparison

NAME = "kvpress-snapkv"
WARM = 2048  # tokens that warm up


def measure(plan: Comparison) -> Generator[str | PeerMeasurement, None, None]:
    """Yield a row for every capacity and length, shortest first."""
    yield f"{NAME}: loading"
    rows = [(capacity, length) for capacity in plan.capacities for length in sorted(plan.lengths)]
    try:
        with _worker(plan) as worker:
            yield from _rows(plan, worker, rows)
    except PeerError as error:
        for capacity, length in rows:
            yield PeerMeasurement(NAME, False, length, capacity, failed=str(error))


def _rows(
    plan: Comparison, worker: Worker, rows: list[tuple[int, int]]
) -> Generator[str | PeerMeasurement, None, None]:
    started = time.perf_counter()
    device = choose_device(plan.device)
    known = worker.ask(
        {
            "do": "load",
            "model": "" if plan.random else _source(plan),
            "shape": SHAPES[plan.random] if plan.random else None,
            "device": str(device),
            "dtype": str(choose_dtype(resolve(plan.dtype, device)[0], device)).removeprefix("torch."),
            "threads": plan.threads or 0,
        },
        plan.limit,
    )
    shortest = min(plan.lengths)
    sizes = {"do": "run", "new_tokens": plan.new_tokens}
    worker.ask({**sizes, "length": min(shortest, WARM), "capacity": min(shortest, WARM) // 2}, plan.limit)
    warm = time.perf_counter() - started
    for capacity, length in rows:
        yield f"{NAME}: {short(length)}"
        try:
            found = worker.ask({**sizes, "length": length, "capacity": capacity}, plan.limit)
        except PeerError as error:
            yield PeerMeasurement(NAME, False, length, capacity, failed=str(error))
            continue
        yield _row(found, known, length, capacity, warm)


def _row(
    found: dict[str, Any], known: dict[str, Any], length: int, capacity: int, warm: float
) -> PeerMeasurement:
    steps, versions = found.pop("steps_s"), known["versions"]
    found.pop("peer")
    return PeerMeasurement(
        NAME,
        False,
        length,
        capacity,
        note=beyond(length, known["trained"]),
        engine=f"kvpress {versions['kvpress']}, transformers {versions['transformers']}",
        warm_up_s=warm,
        decode_ms=median_ms(steps),
        weight_bytes=known["weight_bytes"],
        **found,
    )


def _worker(plan: Comparison) -> Worker:
    python = interpreter(plan.kvpress, "INFINIPOT_KVPRESS_PYTHON")
    if not python:
        raise PeerError("not installed: give --kvpress PYTHON, an interpreter that has it")
    return Worker(python, "snapkv.py", plan.threads)


def _source(plan: Comparison) -> str:
    """Return the folder or hub id that another interpreter can load too."""
    if catalog.get(plan.model):
        if not store.card(plan.model):
            for _ in pull(plan.model):
                pass
        return str(store.path(plan.model))
    if Path(plan.model).suffix == ".gguf":
        raise PeerError("needs a model folder, not a .gguf file")
    return plan.model
