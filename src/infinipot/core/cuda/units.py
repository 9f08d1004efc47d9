"""Kernels laid out for the matrix units by hand, where they can run; and kernels that begin early.

The first are in Gluon, the lower floor of newer Tritons, which the interpreter does not know.
"""

import warnings
from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any

import torch
import triton
from triton.language.extra import cuda as extra

from infinipot.common.out_of_memory import out_of_memory

ON = True  # false: Triton's own layouts everywhere, for comparison
LEAST_CARD = (8, 0)  # whose units take bfloat16
EARLY = True  # false: every kernel begins when the one before has ended, for comparison
EARLY_CARD = (9, 0)  # from which on a kernel may begin before the one before has ended
gdc_wait: Any = getattr(extra, "gdc_wait", None)  # None: an older Triton
gdc_launch_dependents: Any = getattr(extra, "gdc_launch_dependents", None)
RAN = "Triton Error [CUDA]"  # it was compiled, and failed when it was launched
_REFUSED: set[tuple[str, torch.device]] = set()  # what a card's compiler did not take


def units(name: str, device: torch.device) -> Any:
    """Return the module `unit_NAME_kernels`, or None where it cannot run on this device."""
    if not ON or (name, device) in _REFUSED or _capability(device) < LEAST_CARD:
        return None
    return _module(name)


def attempt(name: str, device: torch.device, run: Callable[[], Any]) -> Any:
    """Return what kernels of a module give, or None where this card's compiler does not take them.

    It is said once, and older kernels serve from then on: nobody has tried every card.
    """
    try:
        return run()
    except Exception as error:  # compilers fail in many ways; a card that fails does so in few
        failed = isinstance(error, getattr(torch, "AcceleratorError", ())) or RAN in str(error)
        if failed or out_of_memory(error):
            raise
        _REFUSED.add((name, device))
        reason = (str(error).splitlines() or [""])[0]
        warnings.warn(f"older kernels instead of unit_{name}: {reason}", stacklevel=3)
        return None


def begins_early(device: torch.device) -> bool:
    """Say whether a kernel may begin on this device while the one before it ends, and wait for it itself."""
    return EARLY and gdc_wait is not None and _capability(device) >= EARLY_CARD


def launching(device: torch.device, early: bool = True) -> dict[str, Any]:
    """What a kernel is launched with to begin early, where the card can and it is so wished."""
    early = early and begins_early(device)
    return {"EARLY": early, **({"launch_pdl": True} if early else {})}


@cache
def _capability(device: torch.device) -> tuple[int, int]:
    """What a tensor's device can do; nothing where kernels are interpreted or it is no card of CUDA's."""
    if triton.knobs.runtime.interpret or device.type != "cuda" or torch.version.hip:
        return (0, 0)
    return torch.cuda.get_device_capability(device)


@cache
def _module(name: str) -> Any:
    try:
        return import_module(f"infinipot.core.cuda.unit_{name}_kernels")
    except ImportError:  # an older Triton
        return None
