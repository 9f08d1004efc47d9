"""The columns of a pot layer, declared once: what stands beside a slot, its type, how many rows of it count.

Allocating, copying, gathering, saving and the kernels' table of addresses all follow this list.
"""

import math
import mmap
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

PAGED = 1 << 19  # bytes from which on a column on a CPU has pages of its own


@dataclass(frozen=True)
class Column:
    """One buffer [B, Hkv, slots] or [B, Hkv, slots, D] of a pot layer.

    like    the column has the width D of the model's `keys` or `values`, and their type unless it has a
            `dtype` of its own; empty: one number a slot.
    length  the layer's counter that says how many of its first rows are in use.
    """

    name: str
    dtype: torch.dtype | None = None
    like: Literal["keys", "values", ""] = ""
    length: Literal["fill", "anchored"] = "fill"

    def empty(self, keys: Tensor, values: Tensor, slots: int) -> Tensor:
        """Return zeros for so many slots, for the batch, heads and device of new keys [B, Hkv, n, D]."""
        shape = (*keys.shape[:2], slots)
        if not self.like:
            return zeros(shape, self.dtype or keys.dtype, keys.device)
        like = keys if self.like == "keys" else values
        return zeros((*shape, like.shape[-1]), self.dtype or like.dtype, like.device)


def zeros(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return zeros; large ones on a CPU in pages of their own.

    Such pages are taken when they are first written, so a short text takes little of a large pot. And what
    lives as long as a pot is not strewn among the many passing tensors of a forward pass, which would keep
    the gaps between them from being used again: 200 MB with 28 layers.
    """
    size = math.prod(shape) * dtype.itemsize
    if device.type != "cpu" or size < PAGED or not hasattr(mmap, "MAP_PRIVATE"):
        return torch.zeros(shape, dtype=dtype, device=device)
    pages = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    return torch.frombuffer(pages, dtype=dtype).view(shape)


def pick(tensor: Tensor, slots: Tensor) -> Tensor:
    """Rows of [B, Hkv, S, D] at slots [B, Hkv, n]: whole rows, several times faster than a gather."""
    batch, heads, length, dim = tensor.shape
    starts = torch.arange(0, batch * heads * length, length, device=slots.device).view(batch, heads, 1)
    rows = tensor.view(-1, dim).index_select(0, (slots + starts).view(-1))
    return rows.view(*slots.shape, dim)


_NUMBERS = (
    Column("source", torch.long),  # place in the text, counted from 0
    Column("novelty", torch.float32),  # -log p when the token was read
    Column("running", torch.float32),  # attention received from every token so far
    Column("sentence", torch.int32),  # the number of the sentence it stands in, where a policy asks for it
)
COLUMNS = (
    Column("keys", like="keys"),
    Column("values", like="values"),
    *_NUMBERS,
    Column("anchors", like="keys", length="anchored"),  # keys as they were first written
    Column("written", torch.long, length="anchored"),  # the positions they were written at
)
SLOTS = tuple(column for column in COLUMNS if column.length == "fill")  # one row a slot
NUMBERS = tuple(column for column in SLOTS if not column.like)  # one number a slot: gathered as they are
STARTING_AT_ZERO = ("novelty", "running")  # of a new slot, until somebody notes more
ROUNDED = (  # the columns of a layer that holds its slots in 8 bits
    Column("keys", torch.int8, like="keys"),
    Column("values", torch.int8, like="values"),
    Column("key_scale", torch.float32),
    Column("value_scale", torch.float32),
    *_NUMBERS,
)
