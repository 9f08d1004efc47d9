"""Triton kernels for pots in 8 bits: new entries, slots as attention reads them, kept slots.

Each has a slow, obvious twin in plain torch that is its oracle, named in its docstring. Buffers come in the
order of `columns.ROUNDED`.
"""

import triton
import triton.language as tl
from torch import Tensor

from infinipot.core.columns import ROUNDED
from infinipot.core.cuda.slot_kernels import move

STRIDE = tl.constexpr(len(ROUNDED))
KEYS, VALUES, KEY_SCALE, VALUE_SCALE, SOURCE, NOVELTY, SUMMED, SENTENCE = (
    tl.constexpr(at) for at in range(len(ROUNDED))
)
LARGEST = tl.constexpr(127.0)
LEAST = tl.constexpr(1.1754943508222875e-38)  # the least normal float32: no division by zero


@triton.jit
def round_row(x, scale):
    """Rows in 8 bits; half goes upwards, as in `rounding.rounded`."""
    return tl.floor(x / tl.maximum(scale, LEAST)[:, None] + 0.5).to(tl.int8)


@triton.jit
def angles(cos, sin, place, here, half, D: tl.constexpr):
    """Cosines and sines [N, D / 2] of places [N], those that are here."""
    at = place[:, None] * (D // 2) + half
    return tl.load(cos + at, mask=here[:, None], other=0.0), tl.load(sin + at, mask=here[:, None], other=0.0)


# A chunk's entries --------------------------------------------------------------


@triton.jit
def _append_rounded(
    keys, values, to_keys, to_values, key_scale, value_scale, source, novelty, running,
    offset, cos, sin, wide_keys, wide_values, dropped, fill, count, slots, kb, kh, kn, vb, vh, vn,
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
    c, s = angles(cos, sin, fill + place, here, half, D)
    a, b = first.to(tl.float32), second.to(tl.float32)
    low = tl.load(offset + head * D + half)[None, :]
    high = tl.load(offset + head * D + D // 2 + half)[None, :]
    a, b = a * c + b * s - low, b * c - a * s - high
    scale = tl.maximum(tl.max(tl.abs(a), 1), tl.max(tl.abs(b), 1)) / LARGEST
    tl.store(to_keys + into, round_row(a, scale), mask=here[:, None])
    tl.store(to_keys + into + D // 2, round_row(b, scale), mask=here[:, None])
    tl.store(key_scale + to, scale, mask=here)
    value = tl.load(
        values + batch * vb + head * vh + place[:, None] * vn + column, mask=here[:, None], other=0.0
    )
    tl.store(wide_values + to[:, None] * D + column, value, mask=here[:, None])
    value = value.to(tl.float32)
    scale = tl.max(tl.abs(value), 1) / LARGEST
    tl.store(to_values + to[:, None] * D + column, round_row(value, scale), mask=here[:, None])
    tl.store(value_scale + to, scale, mask=here)
    tl.store(source + to, tl.load(dropped) + fill + place, mask=here)
    nothing = tl.zeros((N,), tl.float32)
    tl.store(novelty + to, nothing, mask=here)
    tl.store(running + to, nothing, mask=here)


def append_rounded(
    keys: Tensor, values: Tensor, into: list[Tensor], offset: Tensor, cos: Tensor, sin: Tensor,
    wide_keys: Tensor, wide_values: Tensor, dropped: Tensor, fill: int,
) -> None:  # fmt: skip
    """Write new entries [B, Hkv, n, D] after slot `fill`, rounded, and into the buffer as they are.

    Oracle: `RoundedLayer.append`.
    """
    batch, heads, count, dim = keys.shape
    keys, values = (x if x.stride(-1) == 1 else x.contiguous() for x in (keys, values))
    _append_rounded[(batch * heads, triton.cdiv(count, 32))](
        keys, values, *into[: SENTENCE.value], offset, cos, sin, wide_keys, wide_values,
        dropped, fill, count, into[0].shape[2],
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
    c, s = angles(cos, sin, place, here, half, D)
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
    RUNNING: tl.constexpr, NUMBERED: tl.constexpr, BH: tl.constexpr, D: tl.constexpr, N: tl.constexpr,
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
            move(at + KEY_SCALE, tl.float32, inner * capacity, slot, place, here)
            move(at + VALUE_SCALE, tl.float32, inner * capacity, slot, place, here)
            move(at + SOURCE, tl.int64, inner * capacity, slot, place, here)
            move(at + NOVELTY, tl.float32, inner * capacity, slot, place, here)
            if RUNNING:
                move(at + SUMMED, tl.float32, inner * capacity, slot, place, here)
            if NUMBERED:
                move(at + SENTENCE, tl.int32, inner * capacity, slot, place, here)
        start += N


def keep_rounded(
    table: Tensor, slots: Tensor, capacity: int, dim: int, running: bool, numbered: bool
) -> None:
    """Keep the slots [L, B, Hkv, n] of all layers. Oracle: `RoundedLayer.keep`."""
    layers, batch, heads, count = slots.shape
    _keep_rounded[(layers * batch * heads, 3)](
        table, slots, count, capacity,
        RUNNING=running, NUMBERED=numbered, BH=batch * heads, D=dim, N=64, num_warps=8,
    )  # fmt: skip
