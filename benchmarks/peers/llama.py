"""llama.cpp on the CPU, where llama-cpp-python and a GGUF file are (`--gguf FILE`, `--llama PYTHON`)."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from infinipot.common.sizes import short
from peers.measurement import PeerMeasurement, beyond, median_ms
from peers.worker import PeerError, Worker, interpreter

if TYPE_CHECKING:
    from speed.comparison import Comparison

NAME = "llama.cpp"
WARM = 512  # tokens that warm up
SPARE = 64  # more of the context than text, question and answer need


def measure(plan: Comparison) -> Generator[str | PeerMeasurement, None, None]:
    """Yield a row for each length, shortest first; what would take too long is not begun."""
    yield f"{NAME}: loading"
    try:
        with start(plan) as worker:
            yield from _rows(plan, worker)
    except PeerError as error:
        yield from (
            PeerMeasurement(NAME, False, length, failed=str(error)) for length in sorted(plan.lengths)
        )


def _rows(plan: Comparison, worker: Worker) -> Generator[str | PeerMeasurement, None, None]:
    pace, failed = 0.0, ""
    for length in sorted(plan.lengths):
        if pace * length > plan.limit:
            failed = f"skipped: would take {pace * length:,.0f} s or more, the limit is {plan.limit:g} s"
        if not failed:
            yield f"{NAME}: {short(length)}"
            try:
                row = _row(plan, worker, length)
                pace = (row.reading_s or 0.0) / length
                yield row
            except PeerError as error:
                failed = str(error)
        if failed:
            yield PeerMeasurement(NAME, False, length, failed=failed)


def _row(plan: Comparison, worker: Worker, length: int) -> PeerMeasurement:
    started = time.perf_counter()
    known = load(plan, worker, length + plan.new_tokens + SPARE)
    worker.ask({"do": "run", "length": min(length, WARM), "new_tokens": 4}, plan.limit)
    warm = time.perf_counter() - started
    found = worker.ask({"do": "run", "length": length, "new_tokens": plan.new_tokens}, plan.limit)
    notes = [f"on the CPU, {Path(gguf(plan)).name}", beyond(length, known["trained"])]
    return PeerMeasurement(
        NAME,
        False,
        length,
        note="; ".join(filter(None, notes)),
        engine=f"llama-cpp-python {known['version']}",
        warm_up_s=warm,
        first_token_s=found["first_token_s"],
        reading_s=found["reading_s"],
        decode_ms=median_ms(found["steps_s"]),
        cache_bytes=known["cache_bytes"],
        process_peak_bytes=found["process_peak_bytes"],
        weight_bytes=known["weight_bytes"],
        parameters=known["parameters"],
    )


def start(plan: Comparison) -> Worker:
    """Start an interpreter that has llama-cpp-python."""
    gguf(plan)
    python = interpreter(plan.llama, "INFINIPOT_LLAMA_PYTHON", sys.executable)
    return Worker(python, "llama.py", plan.threads)


def load(plan: Comparison, worker: Worker, context: int, flash: bool = True) -> dict[str, Any]:
    """Load the file; a context cut to less than was asked is an error, not a shorter text."""
    threads = plan.threads or torch.get_num_threads()
    asked = {"do": "load", "gguf": gguf(plan), "context": context, "threads": threads, "flash": flash}
    known = worker.ask(asked, plan.limit)
    if known["context"] < context:
        raise PeerError(f"its window ends at {known['context']:,} tokens")
    return known


def gguf(plan: Comparison) -> str:
    """Return the file it reads: named, in the environment, or the model itself."""
    found = plan.gguf or os.environ.get("INFINIPOT_GGUF", "")
    if not found and Path(plan.model).suffix == ".gguf":
        found = plan.model
    if not found:
        raise PeerError("needs a GGUF file of the model: give --gguf FILE")
    if not Path(found).is_file():
        raise PeerError(f"there is no file {found}")
    return found
