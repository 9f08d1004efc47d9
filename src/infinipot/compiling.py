"""Fused kernels for small tensor functions, where there is a compiler for the device (torch.compile, CUDA).

The function itself stays what runs elsewhere, and the oracle of its fused twin.
Where compiling fails (no C compiler, an old card) it says so once and the
function runs as it is.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor


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
