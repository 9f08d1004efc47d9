"""Triton kernel of attention on pots in 8 bits: one new token for each of several pots."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from infinipot.core.cuda.attention_kernels import PIECE, ROWS, join
from infinipot.core.cuda.rounded_kernels import LARGEST, angles, round_row
from infinipot.core.cuda.units import attempt, units

AT_ONCE, STAGES = 64, 2  # slots that one program turns at a time, and reads ahead


@triton.jit
def _half(x):
    """8-bit whole numbers as float16, exactly: their bits below the exponent of 1024 are 1024 + 128 + x."""
    bits = (x.to(tl.uint8, bitcast=True) ^ 0x80).to(tl.uint16) | 0x6400
    return bits.to(tl.float16, bitcast=True) - 1152.0


@triton.jit
def _rounded_pieces(
    queries, fresh_keys, fresh_values, keys_at, values_at, key_scale_at, value_scale_at, offset_at,
    cos, sin, length, sums, tops, totals, scale, slots,
    H: tl.constexpr, G: tl.constexpr, R: tl.constexpr, D: tl.constexpr, P: tl.constexpr, N: tl.constexpr,
):  # fmt: skip
    """Write the new entry, rounded; one head's piece of values weighted by exp(logit - top), with both.

    A block's keys lie at position 0. Turned by their place in the block alone they fit queries that were
    turned back to where the block begins: so all blocks need the same few rows of angles. Whole numbers are
    turned as they are, in float16; their scale, and what the offset adds, come to the logits.
    """
    row, piece = tl.program_id(0), tl.program_id(1)  # row: pot and KV head
    pot, head = row // H, row % H
    filled = tl.load(length + pot)
    begin = head.to(tl.int64) * slots
    keys = tl.multiple_of(tl.load(keys_at + pot).to(tl.pointer_type(tl.int8)), 16) + begin * D
    values = tl.multiple_of(tl.load(values_at + pot).to(tl.pointer_type(tl.int8)), 16) + begin * D
    key_scale = tl.load(key_scale_at + pot).to(tl.pointer_type(tl.float32)) + begin
    value_scale = tl.load(value_scale_at + pot).to(tl.pointer_type(tl.float32)) + begin
    offset = tl.load(offset_at + pot).to(tl.pointer_type(tl.float32)) + head * D
    member, half, column = tl.arange(0, R), tl.arange(0, D // 2), tl.arange(0, D)
    low, high = tl.load(offset + half)[None, :], tl.load(offset + D // 2 + half)[None, :]
    asks = (row * G + member)[:, None] * D + half
    known = (member < G)[:, None]
    ask_a = tl.load(queries + asks, mask=known, other=0.0).to(tl.float32)
    ask_b = tl.load(queries + asks + D // 2, mask=known, other=0.0).to(tl.float32)
    near_c, near_s = angles(cos, sin, tl.arange(0, N), tl.arange(0, N) >= 0, half, D)
    low_near = (low * near_c - high * near_s).to(tl.float16)
    high_near = (high * near_c + low * near_s).to(tl.float16)
    near_c, near_s = near_c.to(tl.float16), near_s.to(tl.float16)
    top = tl.full((R,), float("-inf"), tl.float32)
    total = tl.zeros((R,), tl.float32)
    out = tl.zeros((R, D), tl.float32)
    for start in range(0, P, N):
        first = piece * P + start
        place = first + tl.arange(0, N)
        seen = (place < filled) & (place < slots)
        # No slot of a pot lies beyond its tables, but a last block may begin there.
        far = tl.minimum(first, slots) * (D // 2) + half
        far_c, far_s = tl.load(cos + far)[None, :], tl.load(sin + far)[None, :]
        query_a = (ask_a * far_c + ask_b * far_s).to(tl.float16)
        query_b = (ask_b * far_c - ask_a * far_s).to(tl.float16)
        at = place[:, None] * D + half
        a = _half(tl.load(keys + at, mask=seen[:, None], other=0))
        b = _half(tl.load(keys + at + D // 2, mask=seen[:, None], other=0))
        logits = tl.dot(query_a, tl.trans(a * near_c - b * near_s))
        logits += tl.dot(query_b, tl.trans(b * near_c + a * near_s))
        logits *= tl.load(key_scale + place, mask=seen, other=0.0)[None, :]
        logits += tl.dot(query_a, tl.trans(low_near)) + tl.dot(query_b, tl.trans(high_near))
        logits = tl.where(seen[None, :], logits * scale, float("-inf"))
        best = tl.maximum(top, tl.max(logits, 1))
        base = tl.where(best == float("-inf"), 0.0, best)
        shares = tl.exp(logits - base[:, None])
        past = tl.exp(top - base)
        value = _half(tl.load(values + place[:, None] * D + column, mask=seen[:, None], other=0))
        value *= tl.load(value_scale + place, mask=seen, other=0.0).to(tl.float16)[:, None]
        out = out * past[:, None] + tl.dot(shares.to(tl.float16), value)
        total = total * past + tl.sum(shares, 1)
        top = best
    if (filled >= piece * P) & (filled < (piece + 1) * P) & (filled < slots):
        # The new entry is attended to as it is, at its own position, and rounded for later.
        new_a = tl.load(fresh_keys + row * D + half).to(tl.float32)[None, :]
        new_b = tl.load(fresh_keys + row * D + D // 2 + half).to(tl.float32)[None, :]
        new_value = tl.load(fresh_values + row * D + column).to(tl.float32)[None, :]
        logit = tl.sum(ask_a * new_a + ask_b * new_b, 1) * scale
        higher = tl.maximum(top, logit)
        share, fade = tl.exp(logit - higher), tl.exp(top - higher)
        out = out * fade[:, None] + share[:, None] * new_value
        total = total * fade + share
        top = higher
        one = tl.arange(0, 1)
        new_c, new_s = angles(cos, sin, filled + one, one == 0, half, D)
        turned_a = new_a * new_c + new_b * new_s - low
        turned_b = new_b * new_c - new_a * new_s - high
        size = tl.maximum(tl.max(tl.abs(turned_a), 1), tl.max(tl.abs(turned_b), 1)) / LARGEST
        to = (filled + one)[:, None] * D
        tl.store(keys + to + half, round_row(turned_a, size))
        tl.store(keys + to + D // 2 + half, round_row(turned_b, size))
        tl.store(key_scale + filled + one, size)
        size = tl.max(tl.abs(new_value), 1) / LARGEST
        tl.store(values + to + column, round_row(new_value, size))
        tl.store(value_scale + filled + one, size)
    kept = (row * tl.num_programs(1) + piece) * R + member
    tl.store(sums + kept[:, None] * D + column, out)
    tl.store(tops + kept, top)
    tl.store(totals + kept, total)


def attend_rounded(
    queries: Tensor, keys: Tensor, values: Tensor, at: Tensor, cos: Tensor, sin: Tensor, length: Tensor,
    slots: int, scale: float,
) -> Tensor:  # fmt: skip
    """Attention [N, Hq, 1, D] of one new token a pot, whose keys and values [N, Hkv, 1, D] are written first.

    at [5, N] points to buffers as `RoundedLayer.addresses` says; the new entry goes to slot length [N],
    and nowhere where that is `slots`. Oracle: `attend_fixed` on what `RoundedLayer.write_at` returns.
    """
    many, heads, _, dim = queries.shape
    kv_heads = keys.shape[1]
    group, pieces, device = heads // kv_heads, triton.cdiv(slots, PIECE), queries.device
    out = torch.empty(many, heads, 1, dim, dtype=queries.dtype, device=device)
    if (fast := units("attention", device)) and fast.knows(queries, keys, slots):
        told = queries, keys, values, at, cos, sin, length, slots, scale
        if (found := attempt("attention", device, lambda: fast.unit_pieces(*told))) is not None:
            sums, tops, totals = found
            return join(sums, tops, totals, out, group)
    sums = torch.empty(many * kv_heads, pieces, ROWS, dim, dtype=torch.float32, device=device)
    tops, totals = torch.empty(2, many * kv_heads, pieces, ROWS, dtype=torch.float32, device=device)
    _rounded_pieces[(many * kv_heads, pieces)](
        queries.contiguous(), keys.contiguous(), values.contiguous(), *at, cos, sin, length,
        sums, tops, totals, scale, slots,
        H=kv_heads, G=group, R=ROWS, D=dim, P=PIECE, N=AT_ONCE, num_warps=4, num_stages=STAGES,
    )  # fmt: skip
    return join(sums, tops, totals, out, group)
