"""Fused kernels for small tensor functions, where there is a compiler for the device (torch.compile, CUDA).

The function itself stays what runs elsewhere, and the oracle of its fused twin.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor


def fused(function: Callable[..., Tensor], device: torch.device) -> Callable[..., Tensor]:
    """Return the function, compiled where that pays."""
    return _compiled(function) if device.type == "cuda" else function


@cache
def _compiled(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    return torch.compile(function)
