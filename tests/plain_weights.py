"""A plain model's weights as a source that models in few bits are filled from."""

from __future__ import annotations

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
