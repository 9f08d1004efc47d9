"""Peak memory of this process, where the operating system or the device tells it."""

from __future__ import annotations

import sys


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
