"""Context-Reset RoPE (paper, section 3.5): turning keys back to new positions.

A model hands us keys already rotated to the position they were written at. Keeping such a key as its *anchor*
and always turning from there, in float32, rounds once however many distillations follow. Frequencies come
from the model, so plain, Llama-3, YaRN, longrope and partial RoPE are all the same to this module.
"""

import torch
from torch import Tensor

from infinipot.core.cuda.dispatch import fused


class Rotation:
    """Turns keys back by whole positions, for one set of RoPE frequencies.

    Angles are computed in float64 and stored as float32 tables, a row per number of positions: a float32
    angle of some thousand radians would already be off by 2e-4.
    """

    def __init__(self, frequencies: Tensor, span: int) -> None:
        self.frequencies = frequencies.detach()
        self.cos = self.sin = torch.empty(0)
        self.reach(span)

    def reach(self, span: int) -> None:
        """Make the tables long enough for `span` positions."""
        if span < len(self.cos):
            return
        span = max(span, 2 * len(self.cos))  # tables that grow do so rarely
        steps = torch.arange(span + 1, dtype=torch.float64)
        angles = steps[:, None] * self.frequencies.cpu().double()  # [span + 1, R/2]
        self.cos = angles.cos().float().to(self.frequencies.device)
        self.sin = angles.sin().float().to(self.frequencies.device)

    @property
    def width(self) -> int:
        """R: leading dimensions that turn; the rest of a partial-rotary head stays as it is."""
        return 2 * self.cos.shape[-1]

    def on(self, device: torch.device) -> tuple[Tensor, Tensor]:
        """The tables of cosines and sines, on that device from now on."""
        if self.cos.device != device:  # layers of one RoPE may live on several devices
            self.cos, self.sin = self.cos.to(device), self.sin.to(device)
        return self.cos, self.sin

    def back(self, keys: Tensor, steps: Tensor) -> Tensor:
        """Turn keys [..., S, D] back by `steps` [..., S] positions, rounding once to their dtype."""
        return fused(turned_back, keys.device)(keys, steps, *self.on(keys.device))


def turned_back(keys: Tensor, steps: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Keys [..., S, D] turned back by the rows `steps` [..., S] of the tables [n, R/2]."""
    half, rows = cos.shape[-1], steps.reshape(-1)
    cos = cos.index_select(0, rows).view(*steps.shape, half)  # [..., S, R/2]
    sin = sin.index_select(0, rows).view(*steps.shape, half)
    work = keys.to(torch.promote_types(keys.dtype, torch.float32))
    first, second, rest = work[..., :half], work[..., half : 2 * half], work[..., 2 * half :]
    return torch.cat((first * cos + second * sin, second * cos - first * sin, rest), dim=-1).to(keys.dtype)
