"""InfiniPot: read text of any length in a fixed number of KV-cache entries.

Names are imported when first used, so `import infinipot` and the command line
start without torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from infinipot.api import Engine, attach, load, open_engine
    from infinipot.batch import answer_all, ask_all
    from infinipot.config import PotConfig
    from infinipot.errors import InfiniPotError
    from infinipot.hf.generate import generate_inputs
    from infinipot.reader import Progress, Reader
    from infinipot.recipes import Recipe
    from infinipot.sampling import Generation

__version__ = "0.1.0"

_HOME = {
    "Engine": "api",
    "Generation": "sampling",
    "InfiniPotError": "errors",
    "PotConfig": "config",
    "Progress": "reader",
    "Reader": "reader",
    "Recipe": "recipes",
    "answer_all": "batch",
    "ask_all": "batch",
    "attach": "api",
    "generate_inputs": "hf.generate",
    "load": "api",
    "open_engine": "api",
}
__all__ = [
    "Engine",
    "Generation",
    "InfiniPotError",
    "PotConfig",
    "Progress",
    "Reader",
    "Recipe",
    "answer_all",
    "ask_all",
    "attach",
    "generate_inputs",
    "load",
    "open_engine",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'infinipot' has no attribute '{name}'")
    return getattr(import_module(f"infinipot.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return __all__
