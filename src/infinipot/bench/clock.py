"""Time and memory on any device, and how failures of foreign code are told."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import torch

from infinipot.bench.plan import SKIP

CAPTURE_AFTER = 0.5  # seconds between two signs of life: drawing them must not be what is measured


def settle(device: torch.device) -> None:
    """Wait until the device has done all it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif device.type == "mps":
        torch.mps.synchronize()


def seconds(run: Callable[[], Any], device: torch.device, times: int = 1) -> float:
    """Seconds of one of several runs in a row."""
    settle(device)
    started = time.perf_counter()
    for _ in range(times):
        run()
    settle(device)
    return (time.perf_counter() - started) / times


def decode_ms(moments: list[float]) -> float:
    """Milliseconds a token, from the moments at which tokens came; the first ones do not count."""
    return median_ms([after - before for before, after in pairwise(moments)])


def median_ms(steps: list[float]) -> float:
    """Milliseconds of a step, where the first of them lead to tokens that do not count."""
    return 1000 * statistics.median(steps[SKIP - 1 :])


class Memory:
    """Bytes beyond the weights; made right after they were loaded."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.weights = torch.cuda.memory_allocated(device) if device.type == "cuda" else 0

    def sweep(self) -> None:
        """Give back what earlier measurements left behind."""
        gc.collect()
        if self.device.type == "cuda":
            torch.cuda.empty_cache()

    def start(self) -> None:
        """Forget earlier peaks."""
        if self.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self.device)

    def peak(self) -> dict[str, Any]:
        """The most there was since `start`, as columns of a row."""
        from infinipot.models.peak_memory import peak_memory_bytes

        if self.device.type != "cuda":
            return {"process_peak_bytes": peak_memory_bytes()}
        return {
            "allocated_bytes": torch.cuda.max_memory_allocated(self.device) - self.weights,
            "reserved_bytes": torch.cuda.max_memory_reserved(self.device) - self.weights,
        }


class Pulse:
    """Says when it is time for another sign of life."""

    def __init__(self) -> None:
        self._last = time.perf_counter()

    def due(self) -> bool:
        """True at most every half second."""
        now = time.perf_counter()
        if now - self._last < CAPTURE_AFTER:
            return False
        self._last = now
        return True


def reason(error: BaseException) -> str:
    """Why something failed, in a few words."""
    text = " ".join(str(error).split())
    if isinstance(error, MemoryError | torch.OutOfMemoryError) or "t allocate memory" in text:
        return "out of memory"
    return f"{type(error).__name__}: {text}"[:160] if text else type(error).__name__


@contextmanager
def threads(count: int | None) -> Iterator[int]:
    """Compute with this many threads, then with as many as before."""
    before = torch.get_num_threads()
    if count:
        torch.set_num_threads(count)
    try:
        yield torch.get_num_threads()
    finally:
        torch.set_num_threads(before)
