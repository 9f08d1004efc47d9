"""Triton kernels for weights in few bits: products for few tokens, and whole rows unpacked for many.

A weight [N, K] lies in groups of G columns: data [K / G, N, bytes], so that what one program reads of a group
is in one piece, with a scale and perhaps a least value for each row of a group. Two values share a byte in 4
bits: column j of the group in its low half, column j + G / 2 in its high half. Each kernel has a slow twin in
plain torch (`hf.cuda.grouped`) that is its oracle.
"""

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch import Tensor

from infinipot.core.cuda.units import attempt, units

LEAST_ROWS = 16  # of a product: what the matrix units take
COLUMNS = 32  # of the output a program computes
AT_ONCE = 4  # groups that a program reads at a time
PROGRAMS = 512  # wanted at least, to keep a large chip busy with reading
FLOATS_COLUMNS, FLOATS_AT_ONCE, FLOATS_WIDTH = 4, 2, 1024  # for one row and 8-bit floats: numbers in a piece
FLOATS_SPREAD = True  # x is read once for every column: threads wait for none of the others
BLOCK = 32  # rows a program unpacks
MOST_WARPS = 16  # of a program that rounds a row
FP8_LARGEST = tl.constexpr(448.0)  # of float8_e4m3fn


@triton.jit
def _product(
    x, data, scale, least, out, rows, columns, width, splits,
    G: tl.constexpr, FOUR: tl.constexpr, LEAST: tl.constexpr, R: tl.constexpr, N: tl.constexpr,
    U: tl.constexpr,
):  # fmt: skip
    """One block of columns of x times the weight, over every `splits`th U groups.

    Whole numbers go into the product as they are, exactly; scales are applied to its float32 sums.
    """
    block, split = tl.program_id(0), tl.program_id(1)
    row, column = tl.arange(0, R), block * N + tl.arange(0, N)
    kind = x.dtype.element_ty
    total = tl.zeros((R, N), tl.float32)
    for first in range(split * U, width // G, splits * U):
        for step in tl.static_range(U):  # independent of each other: all are read before any has arrived
            group = first + step
            # Comparisons of a mask have the mask's shape.
            known = (column < columns) & (group + 0 * column < width // G)
            there = ((row < rows) & (group + 0 * row < width // G))[:, None]
            at = group * columns + column
            if FOUR:
                half = tl.arange(0, G // 2)
                place = at.to(tl.int64)[:, None] * (G // 2) + half
                packed = tl.load(data + place, mask=known[:, None], other=0)
                from_x = x + row[:, None] * width + group * G + half
                low = tl.load(from_x, mask=there, other=0.0)
                high = tl.load(from_x + G // 2, mask=there, other=0.0)
                part = tl.dot(low, tl.trans((packed & 15).to(kind)))
                part += tl.dot(high, tl.trans((packed >> 4).to(kind)))
                amount = tl.sum(low.to(tl.float32), 1) + tl.sum(high.to(tl.float32), 1)
            else:
                inner = tl.arange(0, G)
                whole = tl.load(data + at.to(tl.int64)[:, None] * G + inner, mask=known[:, None], other=0)
                low = tl.load(x + row[:, None] * width + group * G + inner, mask=there, other=0.0)
                part = tl.dot(low, tl.trans(whole.to(kind)))
                amount = tl.sum(low.to(tl.float32), 1)
            total += part * tl.load(scale + at, mask=known, other=0.0).to(tl.float32)[None, :]
            if LEAST:
                low_end = tl.load(least + at, mask=known, other=0.0).to(tl.float32)
                total += amount[:, None] * low_end[None, :]
    to = out + (split * rows + row)[:, None] * columns + column
    tl.store(to, total.to(out.dtype.element_ty), mask=(row < rows)[:, None] & (column < columns)[None, :])


@triton.jit
def _sum(parts, out, size, splits, N: tl.constexpr):
    """The sum of all splits' parts."""
    at = tl.program_id(0) * N + tl.arange(0, N)
    here = at < size
    total = tl.zeros((N,), tl.float32)
    for split in range(splits):
        total += tl.load(parts + split * size + at, mask=here, other=0.0)
    tl.store(out + at, total.to(out.dtype.element_ty), mask=here)


def product(
    x: Tensor, data: Tensor, scale: Tensor, least: Tensor | None, group: int,
    bias: Tensor | None = None, gated: bool = False,
) -> Tensor:  # fmt: skip
    """x [rows, K] times a grouped weight [N, K], for few rows. Oracle: `Grouped.unpacked` and a product.

    With a bias [N]; where the weight is `gated`, SiLU of the first half of it times the second half.
    """
    rows, width = x.shape
    columns, four = data.shape[1], data.dtype == torch.uint8
    if rows == 1 and (fast := units("product", x.device)) and fast.knows(x, data):
        told = x, data, scale, least, group, bias, gated
        found = attempt("product", x.device, lambda: fast.one_token(*told))
        if found is not None:
            return found  # type: ignore[no-any-return]  # loaded by name
    blocks = triton.cdiv(columns, COLUMNS)
    splits = max(1, min(16, PROGRAMS // blocks, width // group // AT_ONCE))
    out = torch.empty(rows, columns, dtype=x.dtype, device=x.device)
    parts = out if splits == 1 else torch.empty(splits, rows, columns, dtype=torch.float32, device=x.device)
    _product[(blocks, splits)](
        x.contiguous(), data, scale, scale if least is None else least, parts, rows, columns, width, splits,
        G=group, FOUR=four, LEAST=least is not None, R=max(LEAST_ROWS, triton.next_power_of_2(rows)),
        N=COLUMNS, U=AT_ONCE, num_warps=4,
    )  # fmt: skip
    if splits > 1:
        _sum[(triton.cdiv(out.numel(), 512),)](parts, out, out.numel(), splits, N=512, num_warps=4)
    out = out if bias is None else out + bias
    return F.silu(out[:, : columns // 2]) * out[:, columns // 2 :] if gated else out


@triton.jit
def _unpack(
    data, scale, least, out, first, count, columns, width,
    G: tl.constexpr, FOUR: tl.constexpr, LEAST: tl.constexpr, N: tl.constexpr,
):  # fmt: skip
    block, group = tl.program_id(0), tl.program_id(1)
    place = block * N + tl.arange(0, N)
    known = place < count
    at = group * columns + first + place
    kind = out.dtype.element_ty
    size = tl.load(scale + at, mask=known, other=0.0).to(tl.float32)[:, None]
    low_end = tl.zeros((N, 1), tl.float32)
    if LEAST:
        low_end = tl.load(least + at, mask=known, other=0.0).to(tl.float32)[:, None]
    to = out + place.to(tl.int64)[:, None] * width + group * G
    if FOUR:
        half = tl.arange(0, G // 2)
        packed = tl.load(data + at.to(tl.int64)[:, None] * (G // 2) + half, mask=known[:, None], other=0)
        low = (packed & 15).to(tl.float32) * size + low_end
        high = (packed >> 4).to(tl.float32) * size + low_end
        tl.store(to + half, low.to(kind), mask=known[:, None])
        tl.store(to + G // 2 + half, high.to(kind), mask=known[:, None])
    else:
        inner = tl.arange(0, G)
        whole = tl.load(data + at.to(tl.int64)[:, None] * G + inner, mask=known[:, None], other=0)
        tl.store(to + inner, (whole.to(tl.float32) * size + low_end).to(kind), mask=known[:, None])


def unpack(data: Tensor, scale: Tensor, least: Tensor | None, group: int, first: int, out: Tensor) -> Tensor:
    """Rows from `first` on of a grouped weight, as many as `out` [n, K] has. Oracle: `Grouped.unpacked`."""
    count, width = out.shape
    _unpack[(triton.cdiv(count, BLOCK), width // group)](
        data, scale, scale if least is None else least, out, first, count, data.shape[1], width,
        G=group, FOUR=data.dtype == torch.uint8, LEAST=least is not None, N=BLOCK, num_warps=4,
    )  # fmt: skip
    return out


@triton.jit
def _product_alone(
    x, data, scale, out, rows, width, N: tl.constexpr, U: tl.constexpr, W: tl.constexpr, SPREAD: tl.constexpr
):
    row = tl.program_id(0) * N + tl.arange(0, N)
    known = row < rows
    total = tl.zeros((N, W), tl.float32)
    for first in range(0, width, W * U):
        for step in tl.static_range(U):  # independent of each other: all are read before any has arrived
            at = first + step * W + tl.arange(0, W)
            here = known[:, None] & (at < width)[None, :]
            held = tl.load(data + row.to(tl.int64)[:, None] * width + at[None, :], mask=here, other=0)
            from_x = at[None, :] + 0 * row[:, None] if SPREAD else at
            value = tl.load(x + from_x, mask=from_x < width, other=0.0).to(tl.float32)
            total += held.to(tl.float8e4nv, bitcast=True).to(tl.float32) * value
    found = tl.sum(total, 1) * tl.load(scale + row, mask=known, other=0.0)
    tl.store(out + row, found.to(out.dtype.element_ty), mask=known)


def product_alone(x: Tensor, data: Tensor, scale: Tensor) -> Tensor:
    """x [1, K], as it is, times a weight [N, K] in 8-bit floats, scale [1, N]. Oracle: `Fp8.unpacked`."""
    rows, width = data.shape
    out = torch.empty(1, rows, dtype=x.dtype, device=x.device)
    _product_alone[(triton.cdiv(rows, FLOATS_COLUMNS),)](
        x.contiguous(), data.view(torch.uint8), scale, out, rows, width,
        N=FLOATS_COLUMNS, U=FLOATS_AT_ONCE, W=FLOATS_WIDTH, SPREAD=FLOATS_SPREAD, num_warps=4,
    )  # fmt: skip
    return out


@triton.jit
def store_rounded(value, out, scale, at, here):
    """Store a program's row in 8-bit floats, and its scale."""
    size = tl.maximum(tl.max(tl.abs(value), 0) / FP8_LARGEST, 1e-12)
    tl.store(scale + tl.program_id(0), size)
    tl.store(out + at, (value / size).to(out.dtype.element_ty), mask=here)


@triton.jit
def _round_rows(x, out, scale, width, W: tl.constexpr):
    at = tl.arange(0, W)
    here, at_row = at < width, tl.program_id(0).to(tl.int64) * width + at
    store_rounded(tl.load(x + at_row, mask=here, other=0.0).to(tl.float32), out, scale, at_row, here)


def rounded_warps(block: int) -> int:
    """Warps of a program that holds a row of so many columns: 32 a thread at least."""
    return max(4, min(MOST_WARPS, block // 1024))


def round_rows(x: Tensor) -> tuple[Tensor, Tensor]:
    """Rows [n, K] in float8_e4m3fn with their scales [n, 1]. Oracle: `hf.cuda.fp8.rounded_rows`."""
    rows, width = x.shape
    out = torch.empty(rows, width, dtype=torch.float8_e4m3fn, device=x.device)
    scale = torch.empty(rows, 1, dtype=torch.float32, device=x.device)
    block = triton.next_power_of_2(width)
    _round_rows[(rows,)](x.contiguous(), out, scale, width, W=block, num_warps=rounded_warps(block))
    return out, scale


@triton.jit
def _merge_rounded(
    new, old, new_lse, old_lse, out, scale, queries, nb, nh, nq, ob, oh, oq,
    HEADS: tl.constexpr, H: tl.constexpr, D: tl.constexpr,
):  # fmt: skip
    row, head, column = tl.program_id(0).to(tl.int64), tl.arange(0, H), tl.arange(0, D)
    batch, query, here = row // queries, row % queries, head < HEADS
    sums, there = (batch * HEADS + head) * queries + query, here[:, None]
    gap = tl.load(old_lse + sums, mask=here, other=0.0) - tl.load(new_lse + sums, mask=here, other=0.0)
    a = tl.load(new + batch * nb + head[:, None] * nh + query * nq + column, mask=there, other=0.0)
    c = tl.load(old + batch * ob + head[:, None] * oh + query * oq + column, mask=there, other=0.0)
    first = a.to(tl.float32)
    value = (first + tl.sigmoid(gap)[:, None] * (c.to(tl.float32) - first)).to(a.dtype).to(tl.float32)
    size = tl.maximum(tl.max(tl.max(tl.abs(value), 1), 0) / FP8_LARGEST, 1e-12)
    tl.store(scale + row, size)
    to = out + row * HEADS * D + head[:, None] * D + column
    tl.store(to, (value / size).to(out.dtype.element_ty), mask=there)


def merge_rounded(new: Tensor, old: Tensor, new_lse: Tensor, old_lse: Tensor) -> tuple[Tensor, Tensor]:
    """Two attentions [B, H, Q, D] as one, in rows [B Q, H D] of 8-bit floats. Oracle: both, one by one."""
    batch, heads, queries, dim = new.shape
    out = torch.empty(batch * queries, heads * dim, dtype=torch.float8_e4m3fn, device=new.device)
    scale = torch.empty(len(out), 1, dtype=torch.float32, device=new.device)
    block = triton.next_power_of_2(heads)
    _merge_rounded[(len(out),)](
        new, old, new_lse.contiguous(), old_lse.contiguous(), out, scale, queries,
        *new.stride()[:3], *old.stride()[:3], HEADS=heads, H=block, D=dim,
        num_warps=rounded_warps(block * dim),
    )  # fmt: skip
    return out, scale
