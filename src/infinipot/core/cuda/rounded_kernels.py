"""Triton kernels for pots in 8 bits: new entries, slots as attention reads them, kept slots, one new token.

Each has a slow, obvious twin in plain torch that is its oracle, named in its docstring. Buffers come in the
order of `columns.ROUNDED`.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from infinipot.core.columns import ROUNDED
from infinipot.core.cuda.attention_kernels import PIECE, ROWS, join

STRIDE = tl.constexpr(len(ROUNDED))
KEYS, VALUES, KEY_SCALE, VALUE_SCALE, SOURCE, NOVELTY, SUMMED = (
    tl.constexpr(at) for at in range(len(ROUNDED))
)
AT_ONCE, STAGES = 32, 3  # slots that one program turns at a time, and reads ahead
LARGEST = tl.constexpr(127.0)
LEAST = tl.constexpr(1.1754943508222875e-38)  # the least normal float32: no division by zero


@triton.jit
def _rounded(x, scale):
    """Rows in 8 bits; half goes upwards, as in `rounding.rounded`."""
    return tl.floor(x / tl.maximum(scale, LEAST)[:, None] + 0.5).to(tl.int8)


@triton.jit
def _angles(cos, sin, place, here, half, D: tl.constexpr):
    at = place[:, None] * (D // 2) + half
    return tl.load(cos + at, mask=here[:, None], other=0.0), tl.load(sin + at, mask=here[:, None], other=0.0)


# A chunk's entries --------------------------------------------------------------


@triton.jit
def _append_rounded(
    keys, values, to_keys, to_values, key_scale, value_scale, source, novelty, running,
    offset, cos, sin, wide_keys, wide_values, clock, fill, count, slots, kb, kh, kn, vb, vh, vn,
    H: tl.constexpr, D: tl.constexpr, N: tl.constexpr,
):  # fmt: skip
    row, block = tl.program_id(0), tl.program_id(1)
    batch, head = row // H, row % H
    place, half, column = block * N + tl.arange(0, N), tl.arange(0, D // 2), tl.arange(0, D)
    here = place < count
    to = row.to(tl.int64) * slots + fill + place
    at = keys + batch * kb + head * kh + place[:, None] * kn + half
    first = tl.load(at, mask=here[:, None], other=0.0)
    second = tl.load(at + D // 2, mask=here[:, None], other=0.0)
    into = to[:, None] * D + half
    tl.store(wide_keys + into, first, mask=here[:, None])
    tl.store(wide_keys + into + D // 2, second, mask=here[:, None])
    c, s = _angles(cos, sin, fill + place, here, half, D)
    a, b = first.to(tl.float32), second.to(tl.float32)
    low = tl.load(offset + head * D + half)[None, :]
    high = tl.load(offset + head * D + D // 2 + half)[None, :]
    a, b = a * c + b * s - low, b * c - a * s - high
    scale = tl.maximum(tl.max(tl.abs(a), 1), tl.max(tl.abs(b), 1)) / LARGEST
    tl.store(to_keys + into, _rounded(a, scale), mask=here[:, None])
    tl.store(to_keys + into + D // 2, _rounded(b, scale), mask=here[:, None])
    tl.store(key_scale + to, scale, mask=here)
    value = tl.load(
        values + batch * vb + head * vh + place[:, None] * vn + column, mask=here[:, None], other=0.0
    )
    tl.store(wide_values + to[:, None] * D + column, value, mask=here[:, None])
    value = value.to(tl.float32)
    scale = tl.max(tl.abs(value), 1) / LARGEST
    tl.store(to_values + to[:, None] * D + column, _rounded(value, scale), mask=here[:, None])
    tl.store(value_scale + to, scale, mask=here)
    tl.store(source + to, tl.load(clock) + place, mask=here)
    nothing = tl.zeros((N,), tl.float32)
    tl.store(novelty + to, nothing, mask=here)
    tl.store(running + to, nothing, mask=here)


def append_rounded(
    keys: Tensor, values: Tensor, into: list[Tensor], offset: Tensor, cos: Tensor, sin: Tensor,
    wide_keys: Tensor, wide_values: Tensor, clock: Tensor, fill: int,
) -> None:  # fmt: skip
    """Write new entries [B, Hkv, n, D] after slot `fill`, rounded, and into the buffer as they are.

    Oracle: `RoundedLayer.append`.
    """
    batch, heads, count, dim = keys.shape
    keys, values = (x if x.stride(-1) == 1 else x.contiguous() for x in (keys, values))
    _append_rounded[(batch * heads, triton.cdiv(count, 32))](
        keys, values, *into, offset, cos, sin, wide_keys, wide_values, clock, fill, count, into[0].shape[2],
        *keys.stride()[:3], *values.stride()[:3], H=heads, D=dim, N=32, num_warps=4,
    )  # fmt: skip


# Slots as attention reads them ----------------------------------------------------


@triton.jit
def _widen(
    keys, values, key_scale, value_scale, offset, cos, sin, wide_keys, wide_values, count, slots,
    H: tl.constexpr, D: tl.constexpr, N: tl.constexpr,
):  # fmt: skip
    row, block = tl.program_id(0), tl.program_id(1)
    head = row % H
    place, half, column = block * N + tl.arange(0, N), tl.arange(0, D // 2), tl.arange(0, D)
    here = place < count
    at = row.to(tl.int64) * slots + place
    inner = at[:, None] * D + half
    scale = tl.load(key_scale + at, mask=here, other=0.0)[:, None]
    low = tl.load(offset + head * D + half)[None, :]
    high = tl.load(offset + head * D + D // 2 + half)[None, :]
    a = tl.load(keys + inner, mask=here[:, None], other=0).to(tl.float32) * scale + low
    b = tl.load(keys + inner + D // 2, mask=here[:, None], other=0).to(tl.float32) * scale + high
    c, s = _angles(cos, sin, place, here, half, D)
    kind = wide_keys.dtype.element_ty
    tl.store(wide_keys + inner, (a * c - b * s).to(kind), mask=here[:, None])
    tl.store(wide_keys + inner + D // 2, (b * c + a * s).to(kind), mask=here[:, None])
    scale = tl.load(value_scale + at, mask=here, other=0.0)[:, None]
    value = tl.load(values + at[:, None] * D + column, mask=here[:, None], other=0).to(tl.float32) * scale
    tl.store(wide_values + at[:, None] * D + column, value.to(kind), mask=here[:, None])


def widen(
    held: list[Tensor], offset: Tensor, cos: Tensor, sin: Tensor, wide_keys: Tensor, wide_values: Tensor,
    count: int,
) -> None:  # fmt: skip
    """Put the first `count` slots into a buffer, each key at its slot's position.

    Oracle: `rounding.wide_keys`, and values times their scales.
    """
    if not count:
        return
    batch, heads, slots, dim = wide_keys.shape
    _widen[(batch * heads, triton.cdiv(count, 32))](
        *held[:4], offset, cos, sin, wide_keys, wide_values, count, slots, H=heads, D=dim, N=32, num_warps=4
    )


# Keeping slots, all layers at once ------------------------------------------------


@triton.jit
def _keep_rounded(
    table, slots, count, capacity,
    RUNNING: tl.constexpr, BH: tl.constexpr, D: tl.constexpr, N: tl.constexpr,
):  # fmt: skip
    """Move one head's chosen slots to the front, a block after the other: see `slot_kernels`."""
    row, what = tl.program_id(0), tl.program_id(1)
    layer, inner = row // BH, (row % BH).to(tl.int64)
    at = table + layer * STRIDE
    column = tl.arange(0, D)
    start = 0
    while start < count:
        place = start + tl.arange(0, N)
        here = place < count
        slot = tl.load(slots + row.to(tl.int64) * count + place, mask=here, other=0)
        if what < 2:  # KEYS, VALUES
            rows = tl.multiple_of(tl.load(at + what).to(tl.pointer_type(tl.int8)), 16) + inner * capacity * D
            found = tl.load(rows + slot[:, None] * D + column, mask=here[:, None])
            tl.debug_barrier()
            tl.store(rows + place[:, None] * D + column, found, mask=here[:, None])
        else:
            first = tl.load(at + KEY_SCALE).to(tl.pointer_type(tl.float32)) + inner * capacity
            second = tl.load(at + VALUE_SCALE).to(tl.pointer_type(tl.float32)) + inner * capacity
            source = tl.load(at + SOURCE).to(tl.pointer_type(tl.int64)) + inner * capacity
            novelty = tl.load(at + NOVELTY).to(tl.pointer_type(tl.float32)) + inner * capacity
            a, b = tl.load(first + slot, mask=here), tl.load(second + slot, mask=here)
            text, novel = tl.load(source + slot, mask=here), tl.load(novelty + slot, mask=here)
            tl.debug_barrier()
            tl.store(first + place, a, mask=here)
            tl.store(second + place, b, mask=here)
            tl.store(source + place, text, mask=here)
            tl.store(novelty + place, novel, mask=here)
            if RUNNING:
                running = tl.load(at + SUMMED).to(tl.pointer_type(tl.float32)) + inner * capacity
                summed = tl.load(running + slot, mask=here)
                tl.debug_barrier()
                tl.store(running + place, summed, mask=here)
        start += N


def keep_rounded(table: Tensor, slots: Tensor, capacity: int, dim: int, running: bool) -> None:
    """Keep the slots [L, B, Hkv, n] of all layers. Oracle: `RoundedLayer.keep`."""
    layers, batch, heads, count = slots.shape
    _keep_rounded[(layers * batch * heads, 3)](
        table, slots, count, capacity, RUNNING=running, BH=batch * heads, D=dim, N=64, num_warps=8
    )


# One new token for each of several pots ---------------------------------------


@triton.jit
def _rounded_pieces(
    queries, fresh_keys, fresh_values, keys_at, values_at, key_scale_at, value_scale_at, offset_at,
    cos, sin, length, sums, tops, totals, scale, slots,
    H: tl.constexpr, G: tl.constexpr, R: tl.constexpr, D: tl.constexpr, P: tl.constexpr, N: tl.constexpr,
):  # fmt: skip
    """Write the new entry, rounded; one head's piece of values weighted by exp(logit - top), with both.

    A block's keys lie at position 0. Turned by their place in the block alone they fit queries that were
    turned back to where the block begins: so all blocks need the same few rows of angles.
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
    kind = queries.dtype.element_ty
    asks = (row * G + member)[:, None] * D + half
    known = (member < G)[:, None]
    ask_a = tl.load(queries + asks, mask=known, other=0.0).to(tl.float32)
    ask_b = tl.load(queries + asks + D // 2, mask=known, other=0.0).to(tl.float32)
    near_c, near_s = _angles(cos, sin, tl.arange(0, N), tl.arange(0, N) >= 0, half, D)
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
        query_a = (ask_a * far_c + ask_b * far_s).to(kind)
        query_b = (ask_b * far_c - ask_a * far_s).to(kind)
        at = place[:, None] * D + half
        key_size = tl.load(key_scale + place, mask=seen, other=0.0)[:, None]
        a = tl.load(keys + at, mask=seen[:, None], other=0).to(tl.float32) * key_size + low
        b = tl.load(keys + at + D // 2, mask=seen[:, None], other=0).to(tl.float32) * key_size + high
        logits = tl.dot(query_a, tl.trans((a * near_c - b * near_s).to(kind)))
        logits += tl.dot(query_b, tl.trans((b * near_c + a * near_s).to(kind)))
        logits = tl.where(seen[None, :], logits * scale, float("-inf"))
        best = tl.maximum(top, tl.max(logits, 1))
        base = tl.where(best == float("-inf"), 0.0, best)
        shares = tl.exp(logits - base[:, None])
        past = tl.exp(top - base)
        value = tl.load(values + place[:, None] * D + column, mask=seen[:, None], other=0)
        value_size = tl.load(value_scale + place, mask=seen, other=0.0)
        out = out * past[:, None] + tl.dot((shares * value_size[None, :]).to(kind), value.to(kind))
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
        new_c, new_s = _angles(cos, sin, filled + one, one == 0, half, D)
        turned_a = new_a * new_c + new_b * new_s - low
        turned_b = new_b * new_c - new_a * new_s - high
        size = tl.maximum(tl.max(tl.abs(turned_a), 1), tl.max(tl.abs(turned_b), 1)) / LARGEST
        to = (filled + one)[:, None] * D
        tl.store(keys + to + half, _rounded(turned_a, size))
        tl.store(keys + to + D // 2 + half, _rounded(turned_b, size))
        tl.store(key_scale + filled + one, size)
        size = tl.max(tl.abs(new_value), 1) / LARGEST
        tl.store(values + to + column, _rounded(new_value, size))
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
    sums = torch.empty(many * kv_heads, pieces, ROWS, dim, dtype=torch.float32, device=device)
    tops, totals = torch.empty(2, many * kv_heads, pieces, ROWS, dtype=torch.float32, device=device)
    out = torch.empty(many, heads, 1, dim, dtype=queries.dtype, device=device)
    _rounded_pieces[(many * kv_heads, pieces)](
        queries.contiguous(), keys.contiguous(), values.contiguous(), *at, cos, sin, length,
        sums, tops, totals, scale, slots,
        H=kv_heads, G=group, R=ROWS, D=dim, P=PIECE, N=AT_ONCE, num_warps=4, num_stages=STAGES,
    )  # fmt: skip
    return join(sums, tops, totals, out, group)
