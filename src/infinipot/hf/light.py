"""transformers without what reading on a CPU never uses: torch's compiler, torch.distributed and scipy.

transformers imports these for decorators of functions for cards, for training and for finding objects in
pictures: over a second, and nearly 200 MB of memory. What is left out stays out as long as the process lives,
so this is for a process of our own alone, which has called `own_process`. Everything else is transformers'.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])
COMPILER, UNUSED = "torch._dynamo", "scipy"
DECORATORS = ("allow_in_graph", "assume_constant_result", "disable")  # the compiler's, used on import
NEEDED = (  # what any model is made with
    "accelerate",
    "transformers.generation.utils",
    "transformers.modeling_gguf_pytorch_utils",
    "transformers.modeling_utils",
    "transformers.models.auto.modeling_auto",
)
_process = {"own": False, "light": False}


def own_process() -> None:
    """Say that this process runs a command of ours, and nobody else's code beside it."""
    _process["own"] = True


def compiles() -> bool:
    """Say whether torch's compiler is loaded: without it nothing in this process was ever compiled."""
    return COMPILER in sys.modules


def import_transformers(device: str) -> bool:
    """Import transformers lightly, where that may be; return whether it was."""
    if not _process["own"] or "transformers" in sys.modules or compiles() or not _on_cpu(device):
        return False
    try:
        with _left_out():
            for name in NEEDED:
                import_module(name)
    except Exception:  # a transformers that needs more, or none: let the plain import say so
        for name in [name for name in sys.modules if name.partition(".")[0] == "transformers"]:
            del sys.modules[name]
        return False
    _process["light"] = True
    return True


def uncompiled(function: Function) -> Function:
    """Keep torch's compiler out of a function."""
    if _process["light"]:  # nothing is compiled here, and asking for the compiler would load it
        return function
    import torch

    return torch.compiler.disable(function)  # type: ignore[no-any-return, no-untyped-call]


def _on_cpu(device: str) -> bool:
    import torch

    others = torch.cuda.is_available() or torch.backends.mps.is_available()
    return device == "cpu" or (device == "auto" and not others)


@contextmanager
def _left_out() -> Iterator[None]:
    """Let the compiler's decorators do nothing, and report the others absent, for a while."""
    import torch.distributed

    found, stand_in = find_spec(COMPILER), ModuleType(COMPILER)
    # Modules of the compiler that are named alone are the real ones.
    stand_in.__path__ = list(found.submodule_search_locations or ()) if found else []
    for name in DECORATORS:
        setattr(stand_in, name, _undecorated)
    available, hidden = torch.distributed.is_available, dict[str, Any]({COMPILER: stand_in})
    hidden |= {} if UNUSED in sys.modules else {UNUSED: None}  # None: as if it were not installed
    sys.modules.update(hidden)
    torch._dynamo, torch.distributed.is_available = stand_in, lambda: False
    try:
        yield
    finally:
        torch.distributed.is_available = available
        del torch._dynamo  # torch finds the real one when it is asked for
        for name in hidden:
            del sys.modules[name]


def _undecorated(function: Callable[..., Any] | None = None, *_: Any, **__: Any) -> Any:
    """Return a function as it is, whatever options a decorator was given."""
    return function if function is not None else _undecorated
