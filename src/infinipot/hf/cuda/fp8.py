"""Weights and activations in 8-bit floats, multiplied by the card's own units (torch's `_scaled_mm`).

A weight has a scale for each row (each output), an activation one for each token. Plain torch is the oracle.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from infinipot.core.cuda.dispatch import kernels

KIND = torch.float8_e4m3fn
LARGEST = 448.0
MULTIPLE = 16  # rows and columns of a weight, as the card's units want
LEAST_CARD = (8, 9)  # compute capability from which on cards multiply them


@dataclass(frozen=True)
class Fp8:
    """A weight [out, in] in 8-bit floats with a scale [1, out]."""

    data: Tensor
    scale: Tensor

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of the weight."""
        return self.data.shape[0], self.data.shape[1]

    def unpacked(self) -> Tensor:
        """All values [out, in] in float32."""
        return self.data.float() * self.scale.view(-1, 1)


def rounded_rows(x: Tensor) -> tuple[Tensor, Tensor]:
    """Rows [n, K] in 8-bit floats with their scales [n, 1]."""
    wide = x.float()
    scale = (wide.abs().amax(-1, keepdim=True) / LARGEST).clamp(min=1e-12)
    return (wide / scale).to(KIND), scale


def rounded_weight(weight: Tensor, device: torch.device) -> Fp8:
    """Round a weight [out, in], some rows at a time."""
    parts = torch.split(weight, max(1, 16_000_000 // weight.shape[1]))
    found = [rounded_rows(part.to(device)) for part in parts]
    return Fp8(torch.cat([data for data, _ in found]), torch.cat([scale for _, scale in found]).view(1, -1))


def product(x: Tensor, data: Tensor, scale: Tensor) -> Tensor:
    """x [n, in] times a weight, in x's type: both in 8-bit floats, sums in float32."""
    fast = kernels(x.device)
    rounded, own = fast.round_rows(x) if fast else rounded_rows(x)
    if x.device.type != "cuda":
        return slow_product(rounded, own, data, scale).to(x.dtype)
    # private: torch has no public word yet for products of 8-bit floats with scales
    return torch._scaled_mm(
        rounded, data.T, scale_a=own, scale_b=scale, out_dtype=x.dtype, use_fast_accum=True
    )


def slow_product(x: Tensor, own: Tensor, data: Tensor, scale: Tensor) -> Tensor:
    """The same in float32: whatever is rounded already is taken as it is."""
    return (x.float() @ data.float().T) * own * scale
