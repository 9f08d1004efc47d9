"""What tests of models in few bits share: a plain model's weights as a source, and layers of other parts."""

from __future__ import annotations

from typing import Any

import torch


class PlainWeights:
    """The weights by their names; nothing is packed."""

    def __init__(self, model: torch.nn.Module) -> None:
        self.weights = model.state_dict()

    def has(self, name: str) -> bool:
        return name in self.weights

    def values(self, name: str) -> torch.Tensor:
        found: torch.Tensor = self.weights[name]
        return found

    def blocks(self, name: str) -> None:
        """There are none."""


def give_another_part(layer: Any, change: str) -> None:
    """Make a decoder's layer of width 64 one that is not Llama's."""
    if change == "norm":
        layer.input_layernorm = torch.nn.LayerNorm(64)
    elif change == "activation":
        layer.mlp.act_fn = torch.nn.GELU()
    elif change == "part":
        layer.self_attn.q_norm = torch.nn.Identity()
    elif change == "sinks":
        layer.self_attn.sinks = torch.nn.Parameter(torch.zeros(2))
    else:
        raise ValueError(change)
