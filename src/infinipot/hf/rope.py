"""Finds the RoPE frequencies of a model's layers and freezes them for a pot.

longrope and dynamic RoPE change their frequencies with the largest position
seen. In a pot positions never pass its capacity, and keys of different regimes
must not meet in it, so the regime that fits the capacity is set once.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from infinipot.errors import ModelError

FROZEN = "default"  # a type transformers never updates
MOVING = ("longrope", "dynamic")


def frequencies(model: Any, capacity: int, freeze: bool = True) -> list[Tensor]:
    """Return the frequencies [R/2] of every layer for this capacity, one tensor per distinct RoPE."""
    rotary = getattr(model.base_model, "rotary_emb", None)
    if rotary is None:
        raise ModelError(f"{type(model).__name__} has no rotary embedding: a pot needs RoPE positions")
    config = model.config.get_text_config()
    if isinstance(rotary.rope_type, dict):  # Gemma-3: one RoPE per kind of layer
        kinds = {kind: _fitted(rotary, config, capacity, kind, freeze) for kind in rotary.rope_type}
        return [kinds[kind] for kind in config.layer_types]
    return [_fitted(rotary, config, capacity, None, freeze)] * config.num_hidden_layers


def _fitted(rotary: Any, config: Any, capacity: int, kind: str | None, freeze: bool) -> Tensor:
    name = "inv_freq" if kind is None else f"{kind}_inv_freq"
    found: Tensor = getattr(rotary, name)
    original = _original_type(rotary, kind)
    if original in MOVING:
        found, _ = ROPE_INIT_FUNCTIONS[original](config, found.device, seq_len=capacity, layer_type=kind)
        if freeze:
            rotary.register_buffer(name, found, persistent=False)
            if kind is None:
                rotary.rope_type = FROZEN
            else:
                rotary.rope_type[kind] = FROZEN
    return found


def _original_type(rotary: Any, kind: str | None) -> str:
    """The type the model came with, remembered across freezes for other capacities."""
    kept: dict[str | None, str] = rotary.__dict__.setdefault("_infinipot_rope_type", {})
    current = rotary.rope_type if kind is None else rotary.rope_type[kind]
    return kept.setdefault(kind, current)
