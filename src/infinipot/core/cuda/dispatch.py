"""Faster twins of tensor functions, where the device has them: compiled by torch, or our Triton kernels.

The function itself stays what runs elsewhere, and the oracle of its faster twin. Where compiling fails (no C
compiler, an old card) it says so once and the function runs as it is.
"""

import warnings
from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any

import torch
from torch import Tensor

KERNELS = True  # false: plain torch everywhere, for comparison


def kernels(device: torch.device) -> Any:
    """Return our Triton kernels (`infinipot.core.cuda.kernels`), or None where they cannot run."""
    return _triton() if KERNELS and device.type == "cuda" else None


@cache
def _triton() -> Any:
    try:
        return import_module("infinipot.core.cuda.kernels")
    except ImportError as error:
        warnings.warn(f"plain torch instead of our kernels: {error}", stacklevel=2)
        return None


def fused(function: Callable[..., Tensor], device: torch.device) -> Callable[..., Tensor]:
    """Return the function, compiled where that pays."""
    return _compiled(function) if device.type == "cuda" else function


@cache
def _compiled(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    return _OrPlain(function, torch.compile(function))


class _OrPlain:
    """A compiled function that turns back into the plain one when it cannot be compiled."""

    def __init__(self, plain: Callable[..., Tensor], compiled: Callable[..., Tensor]) -> None:
        self.plain, self.compiled = plain, compiled

    def __call__(self, *arguments: Any) -> Tensor:
        if self.compiled is not self.plain:
            try:
                return self.compiled(*arguments)
            except torch._dynamo.exc.TorchDynamoException as error:
                name = getattr(self.plain, "__name__", "a function")
                warnings.warn(f"{name} runs unfused: {str(error).splitlines()[0]}", stacklevel=2)
                self.compiled = self.plain
        return self.plain(*arguments)
