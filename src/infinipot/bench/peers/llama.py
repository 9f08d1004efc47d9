"""llama.cpp on the CPU, where llama-cpp-python and a GGUF file are (`--gguf FILE`, `--llama PYTHON`)."""

from __future__ import annotations

import os
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

import torch

from infinipot.bench.clock import median_ms
from infinipot.bench.peers.worker import PeerError, Worker, interpreter, own
from infinipot.bench.plan import Plan, shown
from infinipot.bench.rows import Row
from infinipot.bench.steps import Step

NAME = "llama.cpp"
WARM = 512  # tokens that warm up
SPARE = 64  # more of the context than text, question and answer need


def measure(plan: Plan) -> Generator[Step | Row, None, None]:
    """Yield a row for each length, shortest first; what would take too long is not begun."""
    if not plan.lengths:
        return
    yield Step(f"{NAME}: loading")
    try:
        with start(plan) as worker:
            yield from _rows(plan, worker)
    except PeerError as error:
        yield from (Row(NAME, False, length, failed=str(error)) for length in sorted(plan.lengths))


def _rows(plan: Plan, worker: Worker) -> Generator[Step | Row, None, None]:
    pace, failed = 0.0, ""
    for length in sorted(plan.lengths):
        if pace * length > plan.peer_limit:
            failed = f"skipped: would take {pace * length:,.0f} s or more (--peer-limit {plan.peer_limit:g})"
        if failed:
            yield Row(NAME, False, length, failed=failed)
            continue
        yield Step(f"{NAME}: {shown(length)}")
        try:
            row = _row(plan, worker, length)
        except PeerError as error:
            failed = str(error)
            yield Row(NAME, False, length, failed=failed)
            continue
        pace = (row.reading_s or 0.0) / length
        yield row


def _row(plan: Plan, worker: Worker, length: int) -> Row:
    started = time.perf_counter()
    known = load(plan, worker, length + plan.new_tokens + SPARE)
    worker.ask({"do": "run", "length": min(length, WARM), "new_tokens": 4}, plan.peer_limit)
    warm = time.perf_counter() - started
    asked = {"do": "run", "length": length, "new_tokens": plan.new_tokens}
    found = worker.ask(asked, plan.peer_limit)
    notes = [f"beyond its trained window of {shown(known['trained'])}"] if length > known["trained"] else []
    return Row(
        NAME,
        False,
        length,
        note="; ".join([f"on the CPU, {Path(gguf(plan)).name}", *notes]),
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


def start(plan: Plan) -> Worker:
    """Start an interpreter that has llama-cpp-python."""
    gguf(plan)
    return Worker(interpreter(plan.llama, "INFINIPOT_LLAMA_PYTHON", own()), "llama.py", plan.threads)


def load(plan: Plan, worker: Worker, context: int, flash: bool = True) -> dict[str, Any]:
    """Load the file; a context cut to less than was asked is an error, not a shorter text."""
    threads = plan.threads or torch.get_num_threads()
    asked = {"do": "load", "gguf": gguf(plan), "context": context, "threads": threads, "flash": flash}
    known = worker.ask(asked, plan.peer_limit)
    if known["context"] < context:
        raise PeerError(f"its window ends at {known['context']:,} tokens")
    return known


def gguf(plan: Plan) -> str:
    """The file it reads: named, in the environment, or the model itself."""
    found = plan.gguf or os.environ.get("INFINIPOT_GGUF", "")
    if not found and Path(plan.model).suffix == ".gguf":
        found = plan.model
    if not found:
        raise PeerError("needs a GGUF file of the model: give --gguf FILE")
    if not Path(found).is_file():
        raise PeerError(f"there is no file {found}")
    return found
