"""A decoder's small steps in few kernels, for CUDA: joint products, and torch.compile for what is between.

The many element-wise steps cost more than their arithmetic. Modules are compiled in
place through torch's own `Module.compile`; no model code changes, and layers of one
shape share one compilation. Our attention stays outside.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from infinipot.hf.speed.joint import join

FUSED = ("DecoderLayer",)


def fuse(decoder: Any, kinds: Sequence[str] = FUSED) -> int:
    """Join products and compile every module of these kinds; return how many were compiled."""
    join(decoder)
    # private: torch.compiler has no public word for these two
    torch._dynamo.config.recompile_limit = max(64, torch._dynamo.config.recompile_limit)  # a few shapes each
    torch._dynamo.config.allow_unspec_int_on_nn_module = True  # else every layer index compiles anew
    found = [module for module in decoder.modules() if type(module).__name__.endswith(tuple(kinds))]
    for module in found:
        module.compile()  # not dynamic=False: a layer's index would be static too, and every layer compiled
    return len(found)
