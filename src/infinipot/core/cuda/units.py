"""Kernels laid out for the matrix units by hand, where they can run.

They are in Gluon, the lower floor of newer Tritons, which the interpreter does not know.
"""

from functools import cache
from importlib import import_module
from typing import Any

import torch
import triton

ON = True  # false: Triton's own layouts everywhere, for comparison
LEAST_CARD = (8, 0)  # whose units take bfloat16


def units(name: str) -> Any:
    """Return the module `unit_NAME_kernels`, or None where it cannot run."""
    return _module(name) if ON else None


@cache
def _module(name: str) -> Any:
    if triton.knobs.runtime.interpret or not torch.cuda.is_available():
        return None
    if torch.version.hip or torch.cuda.get_device_capability() < LEAST_CARD:
        return None
    try:
        return import_module(f"infinipot.core.cuda.unit_{name}_kernels")
    except ImportError:  # an older Triton
        return None
