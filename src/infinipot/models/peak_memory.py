"""Peak memory of this process, where the operating system or the device tells it."""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path


def peak_memory_bytes(device: str = "cpu") -> int:
    """Most bytes held so far: on a GPU what torch allocated there, otherwise the resident set."""
    if device.startswith("cuda"):
        import torch

        return torch.cuda.max_memory_allocated(device)
    try:
        import resource
    except ImportError:  # Windows has no resource module
        import psutil

        return int(getattr(psutil.Process().memory_info(), "peak_wset", 0))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024  # macOS counts bytes, Linux kibibytes


def forget_peak(device: str = "cpu") -> None:
    """Begin anew with what `recent_peak_bytes` tells, where the system can."""
    if device.startswith("cuda"):
        import torch

        torch.cuda.reset_peak_memory_stats(device)
    else:
        with suppress(OSError):  # Linux only
            Path("/proc/self/clear_refs").write_text("5", "ascii")


def recent_peak_bytes(device: str = "cpu") -> int:
    """Most bytes held since `forget_peak`, or ever where the system tells no more than that."""
    with suppress(OSError, StopIteration):
        if not device.startswith("cuda"):
            lines = Path("/proc/self/status").read_text("ascii").splitlines()
            return 1024 * int(next(line for line in lines if line.startswith("VmHWM")).split()[1])
    return peak_memory_bytes(device)
