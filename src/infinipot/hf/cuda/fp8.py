"""Weights and activations in 8-bit floats, multiplied by the card's own units (torch's `_scaled_mm`).

A weight has a scale for each row (each output), an activation one for each token; a token alone is multiplied
as it is, by our kernel. Plain torch is the oracle.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from infinipot.core.cuda.dispatch import kernels
from infinipot.hf.cuda.grouped import SLICE, Grouped

KIND = torch.float8_e4m3fn
LARGEST = 448.0
MULTIPLE = 16  # rows and columns of a weight, as the card's units want
LEAST_CARD = (8, 9)  # compute capability from which on cards multiply them
ROUGH_HEAD = True  # novelty is by an output head in 8-bit floats, beside the one of answers
FUSED = True  # a compiled layer rounds an input where it computes it; false: by a kernel of its own


class Fp8(Grouped):
    """A weight [out, in] in 8-bit floats with a scale [1, out]; there are no groups."""

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


def rounded_weight(weights: Sequence[Tensor], device: torch.device) -> Fp8:
    """Round weights [out, in] of one input, some rows at a time: one below the other."""
    rows, columns = sum(len(weight) for weight in weights), weights[0].shape[1]
    made = Fp8(torch.empty(rows, columns, dtype=KIND, device=device), torch.empty(1, rows, device=device))
    first = 0
    for part in (part for weight in weights for part in torch.split(weight, max(1, SLICE // columns))):
        at = slice(first, first := first + len(part))
        made.data[at], made.scale.T[at] = rounded_rows(part.to(device))
    return made


def add_rough(head: Any) -> None:
    """Give an output head [V, H] a second weight in 8-bit floats, which `rough_logits` multiplies."""
    weight = getattr(head, "weight", None)
    if (
        isinstance(weight, Tensor)
        and head.bias is None
        and all(size % MULTIPLE == 0 for size in weight.shape)
    ):
        held = rounded_weight([weight.data], weight.device)
        head.register_buffer("rough", held.data, persistent=False)
        head.register_buffer("rough_scale", held.scale, persistent=False)


def rough_logits(head: Any, hidden: Tensor) -> Tensor | None:
    """Logits [n, V] of hidden states [n, H] in 8-bit floats; None where a head has no such weight."""
    held = getattr(head, "rough", None)
    return None if held is None or not ROUGH_HEAD else product(hidden, held, head.rough_scale)


def product(x: Tensor, data: Tensor, scale: Tensor) -> Tensor:
    """x [n, in] times a weight, in x's type: both in 8-bit floats (one row of x as it is)."""
    fast = kernels(x.device)
    if fast and len(x) == 1:
        return fast.product_alone(x, data, scale)  # type: ignore[no-any-return]  # loaded by name
    rounded, own = fast.round_rows(x) if fast else rounded_rows(x)
    return rounded_product(rounded, own, data, scale, x.dtype)


def rounded_product(x: Tensor, own: Tensor, data: Tensor, scale: Tensor, dtype: torch.dtype) -> Tensor:
    """x [n, in] in 8-bit floats, with scales [n, 1], times a weight."""
    if x.device.type != "cuda":
        return slow_product(x, own, data, scale).to(dtype)
    # private: torch has no public word yet for products of 8-bit floats with scales
    return torch._scaled_mm(x, data.T, scale_a=own, scale_b=scale, out_dtype=dtype, use_fast_accum=True)


def slow_product(x: Tensor, own: Tensor, data: Tensor, scale: Tensor) -> Tensor:
    """The same in float32: whatever is rounded already is taken as it is."""
    return (x.float() @ data.float().T) * own * scale
