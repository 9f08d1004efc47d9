"""A weight in 4 or 8 bits, in groups of columns that share a scale: the layout our kernels multiply.

A value is its whole number times the group's scale, plus the group's least value where it has one. Everything
here is plain torch on any device: the kernels' oracle, and what runs where they cannot.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

GROUP = 64  # columns that share a scale, where we round ourselves
SLICE = 16_000_000  # weights that are rounded at a time: bounds what is needed beside the result
SHRINK = (1.0, 0.95, 0.9, 0.85)  # shares of a group's range that are tried for 4 bits
LARGEST = 65504.0  # of float16, which scales are held in


@dataclass(frozen=True)
class Grouped:
    """A weight [out, in].

    data   4 bits: uint8 [groups, out, G / 2], column j of a group in the low half of a byte, column
           j + G / 2 in the high half; 8 bits: int8 [groups, out, G].
    scale  [groups, out]; least likewise, or None where it is zero.
    """

    data: Tensor
    scale: Tensor
    least: Tensor | None = None
    group: int = 0

    @property
    def bits(self) -> int:
        """Bits of a whole number."""
        return 4 if self.data.dtype == torch.uint8 else 8

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of the weight."""
        return self.data.shape[1], self.data.shape[0] * self.group

    @property
    def layout(self) -> tuple[object, ...]:
        """What two weights must share to be multiplied at once."""
        return self.bits, self.group, self.least is None, self.scale.dtype, self.shape[1]

    def rows(self, places: Tensor) -> "Grouped":
        """Return the weight's rows at these places."""
        least = None if self.least is None else self.least[:, places]
        return Grouped(self.data[:, places], self.scale[:, places], least, self.group)

    def unpacked(self) -> Tensor:
        """All values [out, in] in float32."""
        data = self.data
        if self.bits == 4:
            data = torch.cat((data & 15, data >> 4), dim=-1)
        wide = data.float() * self.scale.float()[..., None]
        if self.least is not None:
            wide += self.least.float()[..., None]
        return wide.transpose(0, 1).reshape(self.shape)


def joined(weights: list[Grouped]) -> Grouped:
    """Weights of one layout, one below the other."""
    least = None if weights[0].least is None else torch.cat([one.least for one in weights], 1)  # type: ignore[misc]
    data, scale = (torch.cat([getattr(one, name) for one in weights], 1) for name in ("data", "scale"))
    return Grouped(data, scale, least, weights[0].group)


def fits(weight: Tensor | torch.Size, group: int = GROUP) -> bool:
    """Say whether a weight of this shape can be held in groups."""
    shape = weight if isinstance(weight, torch.Size) else weight.shape
    return len(shape) == 2 and shape[1] % group == 0


def grouped(weight: Tensor, bits: int, device: torch.device, group: int = GROUP) -> Grouped:
    """Round a weight [out, in] to 4 bits (whole numbers from a least value on) or 8 (around zero).

    Rows go to the device some at a time, so nothing as large as the weight exists beside it and the result.
    """
    parts = torch.split(weight, max(1, SLICE // weight.shape[1]))
    return joined([_rounded(part.to(device).float(), bits, group) for part in parts])


def _rounded(weight: Tensor, bits: int, group: int) -> Grouped:
    cut = weight.view(len(weight), -1, group)  # [out, groups, G]
    if bits == 8:
        scale = (cut.abs().amax(-1) / 127).half()
        whole = (cut / _above_zero(scale)).round_().clamp_(-127, 127).to(torch.int8)
        return Grouped(moved(whole), moved(scale), None, group)
    low, high = cut.amin(-1), cut.amax(-1)
    error = torch.full_like(low, float("inf"))
    best = whole = torch.empty(0)
    for share in SHRINK:
        edge = (1 - share) / 2 * (high - low)
        least, scale = (low + edge).half(), ((high - low) * share / 15).half()
        found = ((cut - least[..., None].float()) / _above_zero(scale)).round_().clamp_(0, 15)
        off = (found * scale[..., None].float() + least[..., None].float()).sub_(cut).square_().sum(-1)
        better = off < error
        if share == SHRINK[0]:
            whole, best = found, torch.stack((scale, least))
        else:
            whole = torch.where(better[..., None], found, whole)
            best = torch.where(better, torch.stack((scale, least)), best)
        error = torch.where(better, off, error)
    return Grouped(moved(packed_pairs(whole.to(torch.uint8))), moved(best[0]), moved(best[1]), group)


def packed_pairs(whole: Tensor) -> Tensor:
    """Whole numbers 0 to 15 [..., G] as bytes [..., G / 2]."""
    low, high = whole.chunk(2, dim=-1)
    return low | (high << 4)


def moved(x: Tensor) -> Tensor:
    """Rows and groups [out, groups, ...] in the order they are held in: [groups, out, ...]."""
    return x.transpose(0, 1).contiguous()


def _above_zero(scale: Tensor) -> Tensor:
    return scale.float().clamp(min=1e-12)[..., None]
