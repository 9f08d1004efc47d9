"""A chunk's attention on a CPU with products in bfloat16 and all else in float32; not exact.

For processors that multiply bfloat16 themselves: torch's flash kernel gains nothing from them. Logits come
rounded out of the product, so what all keys have in common is taken off first, which no softmax sees: in
some of Qwen's layers that is a thousand times the rest. `attend` in float32 is the exact twin.
"""

from math import log2

import torch
from torch import Tensor

ROWS, LEAST = 128, 16  # queries of a head at a time, and fewer where keys are many
LOGITS = 2**24  # that exist at once
TWOS = log2(torch.e)  # exponents of two: torch's exp2 takes a fifth of the time of its exp


def attend_mixed(queries: Tensor, keys: Tensor, values: Tensor, scale: float) -> Tensor:
    """Attention output [B, Hq, Q, Dv] of the last Q rows of keys [B, Hkv, K, D], lower-right causal."""
    batch, heads, new, dim = queries.shape
    group = heads // keys.shape[1]
    grouped = (queries * (scale * TWOS)).view(batch, keys.shape[1], group, new, dim)
    out = queries.new_empty(*grouped.shape[:-1], values.shape[-1])
    step = max(LEAST, min(ROWS, new, LOGITS // (group * keys.shape[2])))
    wide = queries.new_empty(group * step * keys.shape[2])  # used again and again: taking pages costs time
    room = wide, torch.empty_like(wide, dtype=torch.bfloat16)
    for row in range(batch):
        for head in range(keys.shape[1]):
            place = row, head
            _one_head(grouped[place].bfloat16(), keys[place], values[place], out[place], step, room)
    return out.view(batch, heads, new, -1)


def _one_head(
    queries: Tensor, keys: Tensor, values: Tensor, out: Tensor, step: int, room: tuple[Tensor, Tensor]
) -> None:
    """Queries [G, Q, D] of a group on its keys [K, D], `step` queries on the keys they see at a time."""
    group, new, dim = queries.shape
    old, apart, seen = len(keys) - new, (keys - keys.mean(0)).bfloat16(), values.bfloat16()
    later = torch.ones(step, step, dtype=torch.bool, device=keys.device).triu_(1)
    for start in range(0, new, step):
        rows = queries[:, start : start + step]
        count, end = rows.shape[1], old + start + rows.shape[1]
        logits, rounded = (one[: group * count * end].view(-1, end) for one in room)  # [G n, end]
        logits.copy_(torch.mm(rows.reshape(-1, dim), apart[:end].T, out=rounded))
        new_ones = logits.view(group, count, end)[..., end - count :]
        new_ones.masked_fill_(later[:count, :count], float("-inf"))
        shares = logits.sub_(logits.amax(1, keepdim=True)).exp2_()
        total = shares.sum(1, keepdim=True)
        mixed = torch.mm(rounded.copy_(shares), seen[:end]).float().div_(total)
        out[:, start : start + count] = mixed.view(group, count, -1)
