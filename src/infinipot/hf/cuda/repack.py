"""GGUF's blocks laid out for our kernels, exactly: the same whole numbers, the same scales.

Where a format has scales of scales, their product is held in float32, which loses nothing. Formats that are
not known here are unpacked and rounded by whoever asks.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from infinipot.hf.cuda.grouped import Grouped, joined, moved, packed_pairs
from infinipot.hf.packed.blocks import Blocks

Made = tuple[Tensor, Tensor, Tensor | None]  # whole numbers [n, groups, G], scales, least values [n, groups]


def repacked(blocks: Blocks, device: torch.device) -> Grouped | None:
    """The same weight in groups on a device; None where the format is not known."""
    if blocks.kind not in FORMATS:
        return None
    take, bits = FORMATS[blocks.kind]
    parts = []
    for data in torch.split(blocks.data, max(1, 16_000_000 // blocks.width)):
        whole, scale, least = take(data.to(device).contiguous())
        whole = whole.view(len(data), -1, whole.shape[-1])
        stored = packed_pairs(whole.to(torch.uint8)) if bits == 4 else whole.to(torch.int8)
        least = None if least is None else moved(least.reshape(len(data), -1))
        parts.append(Grouped(moved(stored), moved(scale.reshape(len(data), -1)), least, whole.shape[-1]))
    return joined(parts)


def _half(data: Tensor) -> Tensor:
    """Numbers of two bytes [..., 2 n] as float16 [..., n]."""
    return data.contiguous().view(torch.float16)


def _nibbles(data: Tensor) -> Tensor:
    """Bytes [..., n] as whole numbers [..., 2 n]: all low halves, then all high ones."""
    return torch.cat((data & 15, data >> 4), dim=-1)


def _fifth_bits(data: Tensor) -> Tensor:
    """Four bytes [..., 4] as 32 bits [..., 32], the lowest first."""
    shifts = torch.arange(8, device=data.device, dtype=torch.uint8)
    return ((data[..., None] >> shifts) & 1).flatten(-2)


def _q4_0(data: Tensor) -> Made:
    block = data.view(len(data), -1, 18)
    scale = _half(block[..., :2])[..., 0]
    return _nibbles(block[..., 2:]), scale, scale * -8


def _q4_1(data: Tensor) -> Made:
    block = data.view(len(data), -1, 20)
    ends = _half(block[..., :4])
    return _nibbles(block[..., 4:]), ends[..., 0], ends[..., 1]


def _q5_0(data: Tensor) -> Made:
    block = data.view(len(data), -1, 22)
    whole = _nibbles(block[..., 6:]) | (_fifth_bits(block[..., 2:6]) << 4)
    return whole.to(torch.int8) - 16, _half(block[..., :2])[..., 0], None


def _q5_1(data: Tensor) -> Made:
    block = data.view(len(data), -1, 24)
    ends = _half(block[..., :4])
    whole = _nibbles(block[..., 8:]) | (_fifth_bits(block[..., 4:8]) << 4)
    return whole, ends[..., 0], ends[..., 1]


def _q8_0(data: Tensor) -> Made:
    block = data.view(len(data), -1, 34)
    return block[..., 2:].contiguous().view(torch.int8), _half(block[..., :2])[..., 0], None


def _k_scales(packed: Tensor) -> tuple[Tensor, Tensor]:
    """Twelve bytes as eight scales and eight minima of six bits [..., 8] (Q4_K, Q5_K)."""
    first, second, third = packed[..., 0:4], packed[..., 4:8], packed[..., 8:12]
    scale = torch.cat((first & 63, (third & 15) | ((first >> 6) << 4)), dim=-1)
    least = torch.cat((second & 63, (third >> 4) | ((second >> 6) << 4)), dim=-1)
    return scale.float(), least.float()


def _k_ends(block: Tensor) -> tuple[Tensor, Tensor]:
    """Scales and least values [n, blocks, 8] of 32 columns each, as float32 products."""
    ends = _half(block[..., :4]).float()
    scale, least = _k_scales(block[..., 4:16])
    return ends[..., :1] * scale, -(ends[..., 1:] * least)


def _q4_k(data: Tensor) -> Made:
    block = data.view(len(data), -1, 144)
    # 128 bytes are four runs of 32, whose low halves are one group of columns and high halves the next.
    runs = block[..., 16:].reshape(*block.shape[:2], 4, 1, 32)
    whole = torch.cat((runs & 15, runs >> 4), dim=-2).flatten(2, 3)  # [n, blocks, 8, 32]
    return whole, *_k_ends(block)


def _q5_k(data: Tensor) -> Made:
    block = data.view(len(data), -1, 176)
    runs = block[..., 48:].reshape(*block.shape[:2], 4, 1, 32)
    low = torch.cat((runs & 15, runs >> 4), dim=-2).flatten(2, 3)  # [n, blocks, 8, 32]
    shifts = torch.arange(8, device=data.device, dtype=torch.uint8)[:, None]
    high = (block[..., None, 16:48] >> shifts) & 1
    return low | (high << 4), *_k_ends(block)


def _q6_k(data: Tensor) -> Made:
    block = data.view(len(data), -1, 210)
    shape = (*block.shape[:2], 2)
    low = block[..., :128].reshape(*shape, 1, 64)
    low = torch.cat((low & 15, low >> 4), dim=-2).reshape(*shape, 4, 32)
    shifts = torch.arange(0, 8, 2, device=data.device, dtype=torch.uint8)[:, None]
    high = (block[..., 128:192].reshape(*shape, 1, 32) >> shifts) & 3
    whole = (low | (high << 4)).to(torch.int8) - 32
    scale = block[..., 192:208].contiguous().view(torch.int8).float()  # [n, blocks, 16], of 16 columns each
    return whole.reshape(*block.shape[:2], 16, 16), _half(block[..., 208:]).float() * scale, None


# By ggml's number, and the bits they are held in.
FORMATS: dict[int, tuple[Callable[[Tensor], Made], int]] = {
    2: (_q4_0, 4),
    3: (_q4_1, 4),
    6: (_q5_0, 8),
    7: (_q5_1, 8),
    8: (_q8_0, 8),
    12: (_q4_k, 4),
    13: (_q5_k, 8),
    14: (_q6_k, 8),
}
