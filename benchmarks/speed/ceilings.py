"""What the machine can do at most, measured in the same run: matrix products, and copies in memory."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch

GPU, CPU = (
    (8192, 2**31, 3.0),
    (2048, 2**28, 1.0),
)  # side of a matrix, bytes to copy, seconds that count as long


def ceilings(
    device: torch.device, dtype: torch.dtype, sizes: tuple[int, int, float] | None = None
) -> dict[str, float]:
    """Matrix products in TFLOP/s, short and sustained, and copies in GB/s (read and written)."""
    side, size, long = sizes or (CPU if device.type == "cpu" else GPU)
    found = {**_matmul(device, dtype, side, long), "copy_gb_s": _copy(device, size)}
    if device.type == "cuda":
        torch.cuda.empty_cache()
    return found


def _matmul(device: torch.device, dtype: torch.dtype, side: int, long: float) -> dict[str, float]:
    a, b = (torch.randn(side, side, device=device).to(dtype) for _ in range(2))
    once = _best(lambda: a @ b, device)
    sustained = seconds(lambda: a @ b, device, max(1, int(long / once)))  # what it holds when it is warm
    work = 2 * side**3 / 1e12
    return {"matmul_tflops": work / once, "matmul_tflops_sustained": work / sustained}


def _copy(device: torch.device, size: int) -> float:
    source = torch.ones(size // 4, dtype=torch.float32, device=device)
    target = torch.empty_like(source)
    return 2 * size / _best(lambda: target.copy_(source), device) / 1e9


def _best(run: Callable[[], Any], device: torch.device) -> float:
    """Seconds of a run at best; the first run warms up."""
    run()
    times = 10 if device.type != "cpu" else 1
    return min(seconds(run, device, times) for _ in range(5))


def seconds(run: Callable[[], Any], device: torch.device, times: int = 1) -> float:
    """Return the seconds of one of several runs in a row."""
    wait = torch.cuda.synchronize if device.type == "cuda" else lambda: None
    wait()
    started = time.perf_counter()
    for _ in range(times):
        run()
    wait()
    return (time.perf_counter() - started) / times
