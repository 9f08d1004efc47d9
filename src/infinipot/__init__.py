"""InfiniPot: read text of any length in a fixed number of KV-cache entries.

Names are imported when first used, so `import infinipot` and the command line
start without torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from infinipot.api import attach, load
    from infinipot.config import PotConfig
    from infinipot.errors import InfiniPotError
    from infinipot.hf.generate import generate_inputs
    from infinipot.reader import Progress, Reader
    from infinipot.recipes import Recipe
    from infinipot.sampling import Generation

__version__ = "0.1.0"

_HOME = {
    "Generation": "sampling",
    "InfiniPotError": "errors",
    "PotConfig": "config",
    "Progress": "reader",
    "Reader": "reader",
    "Recipe": "recipes",
    "attach": "api",
    "generate_inputs": "hf.generate",
    "load": "api",
}
__all__ = [
    "Generation",
    "InfiniPotError",
    "PotConfig",
    "Progress",
    "Reader",
    "Recipe",
    "attach",
    "generate_inputs",
    "load",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'infinipot' has no attribute '{name}'")
    return getattr(import_module(f"infinipot.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return __all__
