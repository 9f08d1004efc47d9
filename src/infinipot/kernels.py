"""One token's attention on a fixed number of slots, as a Triton kernel: slots in pieces, then joined.

`attend_fixed` in attention.py is the same computation in plain torch, and its
oracle. The filled length is read on the device, so that a captured graph serves
every fill. Only imported where there is a GPU.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

PIECE = 256  # slots a program reads
ROWS = 16  # query heads that share a KV head, padded to what the matrix units take


@triton.jit
def _pieces(
    queries, keys, values, length, sums, tops, totals, scale, slots,
    G: tl.constexpr, R: tl.constexpr, D: tl.constexpr, P: tl.constexpr, N: tl.constexpr,
):  # fmt: skip
    """Softmax-weighted values of one head's piece, not yet normalised, with their maximum and total."""
    head, piece = tl.program_id(0), tl.program_id(1)
    filled = tl.load(length)
    row, column = tl.arange(0, R), tl.arange(0, D)
    query = tl.load(queries + (head * G + row)[:, None] * D + column, mask=(row < G)[:, None], other=0.0)
    top = tl.full((R,), float("-inf"), tl.float32)
    total = tl.zeros((R,), tl.float32)
    out = tl.zeros((R, D), tl.float32)
    for start in range(0, P, N):
        place = piece * P + start + tl.arange(0, N)
        seen = (place <= filled) & (place < slots)
        at = (head.to(tl.int64) * slots + place)[:, None] * D + column
        key = tl.load(keys + at, mask=seen[:, None], other=0.0)
        logits = tl.where(seen[None, :], tl.dot(query, tl.trans(key)) * scale, float("-inf"))
        higher = tl.maximum(top, tl.max(logits, 1))
        base = tl.where(higher == float("-inf"), 0.0, higher)
        share = tl.exp(logits - base[:, None])
        fade = tl.exp(top - base)
        value = tl.load(values + at, mask=seen[:, None], other=0.0)
        out = out * fade[:, None] + tl.dot(share.to(value.dtype), value)
        total = total * fade + tl.sum(share, 1)
        top = higher
    kept = (head * tl.num_programs(1) + piece) * R + row
    tl.store(sums + kept[:, None] * D + column, out)
    tl.store(tops + kept, top)
    tl.store(totals + kept, total)


@triton.jit
def _join(
    sums, tops, totals, out, pieces,
    G: tl.constexpr, R: tl.constexpr, D: tl.constexpr, C: tl.constexpr,
):  # fmt: skip
    """One query head's pieces as one."""
    head, row = tl.program_id(0), tl.program_id(1)
    piece, column = tl.arange(0, C), tl.arange(0, D)
    here = piece < pieces
    at = (head * pieces + piece) * R + row
    top = tl.load(tops + at, mask=here, other=float("-inf"))
    weight = tl.exp(top - tl.max(top, 0))
    total = tl.sum(weight * tl.load(totals + at, mask=here, other=0.0), 0)
    parts = tl.load(sums + at[:, None] * D + column, mask=here[:, None], other=0.0)
    joined = tl.sum(weight[:, None] * parts, 0) / total
    tl.store(out + (head * G + row) * D + column, joined.to(out.dtype.element_ty))


def serves(queries: Tensor, keys: Tensor) -> bool:
    """Say whether the kernel knows these shapes."""
    dim, group = queries.shape[-1], queries.shape[1] // keys.shape[1]
    half = queries.dtype in (torch.bfloat16, torch.float16)
    return half and dim in (64, 128, 256) and group <= ROWS and keys.is_contiguous()


def attend_filled(queries: Tensor, keys: Tensor, values: Tensor, scale: float, length: Tensor) -> Tensor:
    """Attention [B, Hq, 1, D] of one token on the first `length` + 1 of the slots [B, Hkv, S, D]."""
    batch, heads, _, dim = queries.shape
    many, slots = batch * keys.shape[1], keys.shape[2]
    group, pieces = heads // keys.shape[1], triton.cdiv(slots, PIECE)
    sums = torch.empty(many, pieces, ROWS, dim, dtype=torch.float32, device=queries.device)
    tops, totals = torch.empty(2, many, pieces, ROWS, dtype=torch.float32, device=queries.device)
    out = torch.empty(batch, heads, 1, dim, dtype=queries.dtype, device=queries.device)
    _pieces[(many, pieces)](
        queries.contiguous(), keys, values, length, sums, tops, totals, scale, slots,
        G=group, R=ROWS, D=dim, P=PIECE, N=64, num_warps=4, num_stages=3,
    )  # fmt: skip
    _join[(many, group)](
        sums, tops, totals, out, pieces, G=group, R=ROWS, D=dim, C=triton.next_power_of_2(pieces), num_warps=4
    )
    return out
