"""Keys and values in 8 bits: pure tensor functions, the oracles of the kernels that do the same on a GPU.

A row [D] becomes whole numbers from -127 to 127 and one scale. Keys are turned back to position 0 first, so
that a slot can move without being rounded again, and a fixed *offset* of each head is taken away: the bias of
some families' keys (Qwen's), the same for all tokens at position 0, would leave nothing of what differs.
"""

import torch
from torch import Tensor

LARGEST = 127
LEAST = torch.finfo(torch.float32).tiny


def rounded(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Rows [..., D] as int8, with their scales [...] in float32."""
    wide = rows.float()
    scale = wide.abs().amax(-1) / LARGEST
    # Half upwards, as the kernel does: `round` would go to the even neighbour.
    return (wide / scale.clamp(min=LEAST)[..., None] + 0.5).floor().to(torch.int8), scale


def turned(keys: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Keys [..., S, D] turned forward by the angles [S, R/2] of their positions, or back with the sine's sign
    changed; dimensions beyond R stay as they are."""
    half = cos.shape[-1]
    first, second, rest = keys[..., :half], keys[..., half : 2 * half], keys[..., 2 * half :]
    return torch.cat((first * cos - second * sin, second * cos + first * sin, rest), dim=-1)


def rounded_keys(keys: Tensor, offset: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
    """Keys [B, Hkv, n, D] that were written at positions of these angles, in 8 bits at position 0."""
    return rounded(turned(keys.float(), cos, -sin) - offset[:, None])


def wide_keys(out: Tensor, keys: Tensor, scale: Tensor, offset: Tensor, cos: Tensor, sin: Tensor) -> None:
    """Write int8 keys [B, Hkv, n, D] of these scales to `out`, turned to positions of these angles."""
    wide = torch.addcmul(offset[:, None], keys.float(), scale[..., None])
    if out.dtype != wide.dtype:
        out.copy_(turned(wide, cos, sin))
        return
    half = cos.shape[-1]  # the same without a copy: on a CPU every token of an answer waits for this
    first, second = wide[..., :half], wide[..., half : 2 * half]
    torch.mul(first, cos, out=out[..., :half]).addcmul_(second, sin, value=-1)
    torch.mul(second, cos, out=out[..., half : 2 * half]).addcmul_(first, sin)
    out[..., 2 * half :] = wide[..., 2 * half :]
