"""What reading needs of a language model: three functions and what its device allows."""

from typing import Protocol

import torch
from torch import Tensor

from infinipot.core.config import DEFAULT_MODE, ReadingMode
from infinipot.core.pot import Pot
from infinipot.core.rows import Rows


class Model(Protocol):
    """A language model as a session sees it."""

    device: torch.device
    vocabulary: int
    obstacle: str  # why the model's forward cannot be captured; empty where it can

    def new_pot(self, capacity: int, keep: int, mode: ReadingMode = DEFAULT_MODE, bits: int = 16) -> Pot:
        """Return an empty pot with this model's layers."""

    def forward(self, tokens: Tensor, pot: Pot | Rows) -> Tensor:
        """Write tokens [B, n] into the pot and return their hidden states [B, n, H]."""

    def logits(self, hidden: Tensor) -> Tensor:
        """Next-token logits [..., V] of hidden states [..., H]."""
