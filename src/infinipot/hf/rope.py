"""Finds the RoPE frequencies of a model's layers and holds them still for a pot.

longrope and dynamic RoPE change their frequencies with the largest position seen. In a pot positions never
pass its capacity, and keys of different regimes must not meet in it, so the regime that fits the capacity
holds while a pot is written, and only then.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from infinipot.errors import ModelError

STILL = "default"  # a type transformers never updates
MOVING = ("longrope", "dynamic")


def frequencies(decoder: Any, config: Any, capacity: int) -> list[Tensor]:
    """Return the frequencies [R/2] of every layer for this capacity, one tensor per distinct RoPE."""
    rotary = getattr(decoder, "rotary_emb", None)
    if rotary is None or not hasattr(rotary, "rope_type"):
        raise ModelError(f"{type(decoder).__name__} has no rotary embedding: a pot needs RoPE positions")
    if isinstance(rotary.rope_type, dict):  # Gemma-3: one RoPE per kind of layer
        kinds = {kind: _fitted(rotary, config, capacity, kind) for kind in rotary.rope_type}
        return [kinds[kind] for kind in config.layer_types]
    return [_fitted(rotary, config, capacity, None)] * config.num_hidden_layers


@contextmanager
def still(decoder: Any, config: Any, capacity: int) -> Iterator[None]:
    """Hold the frequencies that fit the capacity for the length of a forward pass."""
    rotary = decoder.rotary_emb
    if rotary.rope_type not in MOVING:  # a dict of kinds is not either: no model has moving ones
        yield
        return
    before, kind = rotary.inv_freq, rotary.rope_type
    rotary.inv_freq, rotary.rope_type = _fitted(rotary, config, capacity, None), STILL
    try:
        yield
    finally:
        rotary.inv_freq, rotary.rope_type = before, kind


def moves_within(decoder: Any, config: Any, capacity: int) -> bool:
    """Say whether the frequencies for this capacity differ from those of short texts."""
    short, long = frequencies(decoder, config, 1), frequencies(decoder, config, capacity)
    return any(not bool((a == b).all()) for a, b in zip(short, long, strict=True))


def key_factors(decoder: Any) -> dict[str, float]:
    """Return what YaRN and longrope multiply keys by, under the names the rotary embedding gives them."""
    rotary = decoder.rotary_emb
    kinds = [f"{kind}_" for kind in rotary.rope_type] if isinstance(rotary.rope_type, dict) else [""]
    names = [f"{kind}attention_scaling" for kind in kinds]
    return {name: float(getattr(rotary, name)) for name in names if hasattr(rotary, name)}


def _fitted(rotary: Any, config: Any, capacity: int, kind: str | None) -> Tensor:
    found: Tensor = getattr(rotary, "inv_freq" if kind is None else f"{kind}_inv_freq")
    type_ = rotary.rope_type if kind is None else rotary.rope_type[kind]
    if type_ in MOVING:
        found, _ = ROPE_INIT_FUNCTIONS[type_](config, found.device, seq_len=capacity, layer_type=kind)
    return found
