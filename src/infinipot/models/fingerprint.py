"""By what a pot's model is recognised: its weights, its tokenizer, its RoPE. One SHA-256 each.

The same on every machine and device, whatever name the model was loaded by. Weights are known by their
names, shapes and evenly spaced values. Takes the parts of an engine, not the engine, which lies above.
"""

import hashlib
import json
import math
from collections.abc import Iterable
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from infinipot.core.pot import Pot
from infinipot.core.window_layer import WindowLayer
from infinipot.errors import StoreError
from infinipot.text.tokenizer import Tokenizer

SAMPLES = 64  # values of each tensor
# Frequencies differ in their last bits from device to device; other RoPEs differ by far more than 2^(1/256).
_STEPS = 256
_known: WeakKeyDictionary[Any, str] = WeakKeyDictionary()  # a large vocabulary takes half a second


@torch.no_grad()
def sampled(tensors: Iterable[tuple[str, Any]]) -> str:
    """Return a SHA-256 of named tensors, or of what has a shape and says the values `at` flat places."""
    digest = hashlib.sha256()
    for name, tensor in sorted(tensors, key=lambda pair: pair[0]):
        digest.update(f"{name} {tuple(tensor.shape)}\n".encode())
        places = torch.linspace(0, math.prod(tensor.shape) - 1, SAMPLES, dtype=torch.float64).long()
        if isinstance(tensor, Tensor):
            found = tensor.detach().reshape(-1)[places.to(tensor.device)]
        else:
            found = tensor.at(places)
        # bfloat16 is the coarsest of the dtypes: the same weights give the same hash in each of them.
        values = found.to(torch.bfloat16).float().cpu().tolist()
        digest.update(repr(values).encode())
    return digest.hexdigest()


def weights(model: Any, sample: str = "") -> str:
    """Return what the weights are known by; `sample` is what was taken when they were loaded."""
    if sample:
        return sample
    if not hasattr(model, "named_weights"):
        raise StoreError("this model cannot be recognised again", remedy="give its class `named_weights()`")
    if model not in _known:
        _known[model] = sampled(model.named_weights())
    return _known[model]


def tokenizer(found: Tokenizer) -> str:
    """Return what a tokenizer is known by: how it splits texts, and what it puts around them."""
    if found not in _known:
        plain = found.frame("plain")
        around = [list(part) for part in (plain.opening, plain.ask_before, plain.turn_before)]
        # One of our own has no parts to show: its class says all.
        parts = getattr(found, "parts", lambda: [type(found).__module__, type(found).__qualname__])()
        _known[found] = _digest([*parts, around])
    return _known[found]


def rope(pot: Pot, model: Any = None) -> str:
    """Return what the positions of a pot's layers are known by."""
    windows = [layer.window if isinstance(layer, WindowLayer) else None for layer in pot.layers]
    ropes: list[list[float]] = [layer.rotation.frequencies.tolist() for layer in pot.layers]
    turns = [[round(_STEPS * math.log2(max(f, 2.0**-99))) for f in one] for one in ropes]
    layers = list(zip(windows, turns, strict=True))
    factors: dict[str, float] = getattr(model, "key_factors", dict)()  # what YaRN multiplies keys by
    return _digest([layers, sorted((name, round(_STEPS * value)) for name, value in factors.items())])


def dtype(model: Any) -> str:
    """Return the name of the dtype of a model's keys and values."""
    return str(model.dtype).removeprefix("torch.")


def _digest(data: list[Any]) -> str:
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()
