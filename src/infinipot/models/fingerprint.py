"""By what a pot's model is recognised: its weights, its tokenizer, its RoPE. One SHA-256 each.

The same on every machine and device, whatever name the model was loaded by. Takes the parts of an
engine, not the engine, which lies above.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from infinipot.core.pot import Pot
from infinipot.core.window_layer import WindowLayer
from infinipot.models.sample import sampled
from infinipot.text.tokenizer import Tokenizer

# Frequencies differ in their last bits from device to device; other RoPEs differ by far more than 2^(1/256).
_STEPS = 256
_known: WeakKeyDictionary[Any, str] = WeakKeyDictionary()  # a large vocabulary takes half a second


def weights(model: Any, sample: str = "") -> str:
    """Return what the weights are known by; `sample` is what was taken when they were loaded."""
    if sample:
        return sample
    if model not in _known:
        _known[model] = sampled(tensors(model))
    return _known[model]


def tokenizer(found: Tokenizer) -> str:
    """Return what a tokenizer is known by: how it splits texts, and what it puts around them."""
    if found not in _known:
        text = json.dumps(_splits(found), sort_keys=True)
        _known[found] = hashlib.sha256(text.encode()).hexdigest()
    return _known[found]


def _splits(found: Tokenizer) -> list[Any]:
    plain = found.frame("plain")
    around: list[Any] = [list(plain.opening), list(plain.ask_before), list(plain.turn_before)]
    inner: Any = getattr(found, "_hf", None)
    if inner is None:  # one of our own: its class says all
        return [type(found).__module__, type(found).__qualname__, around]
    backend = json.loads(inner.backend_tokenizer.to_str())
    # Both are set by whoever called last. The chat frame itself may hold today's date, its template does not.
    for passing in ("truncation", "padding"):
        backend.pop(passing, None)
    return [backend, inner.chat_template, around]


def rope(pot: Pot, model: Any = None) -> str:
    """Return what the positions of a pot's layers are known by."""
    layers = [
        (
            layer.window if isinstance(layer, WindowLayer) else None,
            [round(_STEPS * math.log2(max(f, 2.0**-99))) for f in layer.rotation.frequencies.tolist()],
        )
        for layer in pot.layers
    ]
    rotary = getattr(getattr(model, "decoder", None), "rotary_emb", None)
    scaling = sorted(  # what YaRN and longrope multiply keys by
        (name, round(_STEPS * float(value)))
        for name, value in (vars(rotary) if rotary is not None else {}).items()
        if name.endswith("attention_scaling")
    )
    return hashlib.sha256(json.dumps([layers, scaling]).encode()).hexdigest()


def dtype(model: Any) -> str:
    """Return the name of the dtype of a model's keys and values."""
    found = getattr(model, "dtype", None) or model.model.dtype
    return str(found).removeprefix("torch.")


def tensors(model: Any) -> Iterator[tuple[str, Tensor]]:
    """A transformers model knows its weights; any other is searched for tensors."""
    if isinstance(inner := getattr(model, "model", None), torch.nn.Module):
        yield from inner.state_dict().items()
    else:
        yield from _found("", vars(model))


def _found(name: str, value: Any) -> Iterator[tuple[str, Tensor]]:
    if isinstance(value, Tensor):
        yield name, value
    elif isinstance(value, dict):
        for key, part in value.items():
            yield from _found(f"{name}.{key}", part)
    elif isinstance(value, list | tuple):
        for index, part in enumerate(value):
            yield from _found(f"{name}.{index}", part)
