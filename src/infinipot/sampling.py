"""Next tokens from logits: greedy, or drawn at a temperature. Pure functions."""

from __future__ import annotations

import torch
from torch import Tensor


def sample(logits: Tensor, temperature: float = 0.0, generator: torch.Generator | None = None) -> Tensor:
    """Pick a token for each row of logits [B, V] -> [B]; temperature 0 takes the likeliest."""
    if temperature <= 0:
        return logits.argmax(-1)
    shares = torch.softmax(logits.float() / temperature, dim=-1)
    return torch.multinomial(shares, 1, generator=generator)[:, 0]
