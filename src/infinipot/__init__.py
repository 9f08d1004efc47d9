"""InfiniPot: read text of any length in a fixed number of KV-cache entries.

Names are imported when first used, so `import infinipot` and the command line start without torch.
"""

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from infinipot.core.config import PotConfig as PotConfig
    from infinipot.engine import Engine as Engine
    from infinipot.engine import attach as attach
    from infinipot.engine import load as load
    from infinipot.engine import open_engine as open_engine
    from infinipot.errors import InfiniPotError as InfiniPotError
    from infinipot.hf.generate import generate_inputs as generate_inputs
    from infinipot.reading.answer import answer_all as answer_all
    from infinipot.reading.answer import ask_all as ask_all
    from infinipot.reading.grammar import Grammar as Grammar
    from infinipot.reading.progress import Progress as Progress
    from infinipot.reading.reader import Reader as Reader
    from infinipot.reading.sampling import Generation as Generation
    from infinipot.recipes.recipe import Recipe as Recipe
    from infinipot.text.documents import documents as documents

__version__ = "0.1.0"

# Threads that wait for work soon sleep instead of spinning: beside another busy process they would keep those
# that work from a core. Waking one takes as long as a small product, so they spin for some 100 microseconds
# first. OpenMP reads this once, when torch is first imported.
if "OMP_WAIT_POLICY" not in os.environ:
    os.environ["OMP_WAIT_POLICY"] = "PASSIVE"
    os.environ.setdefault("GOMP_SPINCOUNT", "5000")
# Large tensors on a CPU lie in huge pages where the system allows that: taking pages one by one costs time.
os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")

_HOME = {
    "Engine": "engine",
    "Generation": "reading.sampling",
    "Grammar": "reading.grammar",
    "InfiniPotError": "errors",
    "PotConfig": "core.config",
    "Progress": "reading.progress",
    "Reader": "reading.reader",
    "Recipe": "recipes.recipe",
    "answer_all": "reading.answer",
    "ask_all": "reading.answer",
    "attach": "engine",
    "documents": "text.documents",
    "generate_inputs": "hf.generate",
    "load": "engine",
    "open_engine": "engine",
}
__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'infinipot' has no attribute '{name}'")
    return getattr(import_module(f"infinipot.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return __all__
