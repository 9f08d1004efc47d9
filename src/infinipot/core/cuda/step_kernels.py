"""Triton kernels of tokens' way through a decoder, around its products: sums with norms, RoPE, attention.

Where products are of 8-bit floats, the kernel that computes their input rounds it. A kernel that is EARLY
begins while the one before it ends and then waits for it; what it may do before is fetch what no kernel of
the step writes. So the first kernel of a step must not be: what was written before the step is there when
that one begins. Each kernel has a twin in plain torch, named in its docstring.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from infinipot.core.cuda.attention_kernels import HALF, ROWS, head_of_pot, join
from infinipot.core.cuda.product_kernels import rounded_warps, store_rounded
from infinipot.core.cuda.units import gdc_launch_dependents, gdc_wait, launching

Input = (
    Tensor | tuple[Tensor, Tensor]
)  # of a product: rows [n, K] as they are, or in 8-bit floats with scales
GATED_BLOCK = 2048  # columns of a program of `gated`, where that has not a whole row
PIECE = 128  # slots of one program, all read before the token's query is there
MOST = 64  # pieces of a pot, that one program joins


@triton.jit
def _add_norm(
    x, more, weight, total, out, scale, width, eps,
    W: tl.constexpr, ADD: tl.constexpr, ROUND: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    if EARLY:
        gdc_launch_dependents()
        gdc_wait()
    at = tl.arange(0, W)
    here, at_row = at < width, tl.program_id(0).to(tl.int64) * width + at
    kind = x.dtype.element_ty
    value = tl.load(x + at_row, mask=here, other=0.0).to(tl.float32)
    gain = tl.load(weight + at, mask=here, other=0.0)
    if ADD:
        value += tl.load(more + at_row, mask=here, other=0.0).to(tl.float32)
        tl.store(total + at_row, value.to(kind), mask=here)
        value = value.to(kind).to(tl.float32)
    size = tl.rsqrt(tl.sum(value * value, 0) / width + eps)
    normed = gain * (value * size).to(kind)
    if ROUND:
        store_rounded(normed.to(tl.float32), out, scale, at_row, here)
    else:
        tl.store(out + at_row, normed, mask=here)


def add_norm(
    x: Tensor, more: Tensor | None, weight: Tensor, eps: float, early: bool = True, rounds: bool = False
) -> tuple[Tensor, Input]:
    """x [n, K] plus `more`, and that after RMSNorm, rounded to 8-bit floats if so wished.

    Oracle: a sum, Llama's norm in plain torch, `fp8.rounded_rows`.
    """
    rows, width = x.shape
    total, (out, scale) = (x if more is None else torch.empty_like(x)), _inputs(x, width, rounds)
    _add_norm[(rows,)](
        x, x if more is None else more, weight, total, out, scale, width, eps,
        W=triton.next_power_of_2(width), ADD=more is not None, ROUND=rounds, num_warps=8,
        **launching(x.device, early),
    )  # fmt: skip
    return total, ((out, scale) if rounds else out)


def _inputs(like: Tensor, width: int, rounds: bool) -> tuple[Tensor, Tensor]:
    """Room for a product's input [n, K], and where it is rounded for its scales [n, 1]."""
    out = like.new_empty(len(like), width, dtype=torch.float8_e4m3fn if rounds else like.dtype)
    return out, (like.new_empty(len(like), 1, dtype=torch.float32) if rounds else out)


@triton.jit
def _gated(x, out, scale, width, W: tl.constexpr, ROUND: tl.constexpr, EARLY: tl.constexpr):
    if EARLY:
        gdc_launch_dependents()
        gdc_wait()
    row, at = tl.program_id(0).to(tl.int64), tl.program_id(1) * W + tl.arange(0, W)
    here = at < width
    gate = tl.load(x + row * 2 * width + at, mask=here, other=0.0).to(tl.float32)
    value = gate * tl.sigmoid(gate) * tl.load(x + (row * 2 + 1) * width + at, mask=here, other=0.0)
    if ROUND:
        store_rounded(value, out, scale, row * width + at, here)
    else:
        tl.store(out + row * width + at, value.to(out.dtype.element_ty), mask=here)


def gated(x: Tensor, rounds: bool = False, early: bool = False) -> Input:
    """SiLU of the first half of rows [n, 2 K] times the second half, rounded to 8-bit floats if so wished.

    A row that is rounded is one program's, which holds all of it. Oracle: `F.silu`, `fp8.rounded_rows`.
    """
    rows, width = len(x), x.shape[1] // 2
    out, scale = _inputs(x, width, rounds)
    block = triton.next_power_of_2(width) if rounds else GATED_BLOCK
    _gated[(rows, triton.cdiv(width, block))](
        x, out, scale, width, W=block, ROUND=rounds, num_warps=rounded_warps(block) if rounds else 4,
        **launching(x.device, early),
    )  # fmt: skip
    return (out, scale) if rounds else out


@triton.jit
def _angles(places, frequencies, cos, sin, factor, D: tl.constexpr):
    row, half = tl.program_id(0), tl.arange(0, D // 2)
    angle = tl.load(places + row).to(tl.float32) * tl.load(frequencies + half)
    tl.store(cos + row * (D // 2) + half, (tl.cos(angle) * factor).to(cos.dtype.element_ty))
    tl.store(sin + row * (D // 2) + half, (tl.sin(angle) * factor).to(sin.dtype.element_ty))


def angles_at(
    places: Tensor, frequencies: Tensor, factor: float, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """Cosines and sines [n, D / 2] at places [n], times a factor. Oracle: Llama's rotary embedding."""
    cos, sin = torch.empty(2, len(places), len(frequencies), dtype=dtype, device=places.device)
    _angles[(len(places),)](
        places.contiguous(), frequencies, cos, sin, factor, D=2 * len(frequencies), num_warps=1
    )
    return cos, sin


@triton.jit
def _apart(
    qkv, cos, sin, out, rows, KEYS: tl.constexpr, VALUES: tl.constexpr, ALL: tl.constexpr,
    D: tl.constexpr, N: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    if EARLY:
        gdc_launch_dependents()
        gdc_wait()
    head, place, half = tl.program_id(1), tl.program_id(0) * N + tl.arange(0, N), tl.arange(0, D // 2)
    first = tl.where(head < KEYS, 0, tl.where(head < VALUES, KEYS, VALUES))
    count = tl.where(head < KEYS, KEYS, VALUES - KEYS)  # there are as many values as keys
    here = (place < rows)[:, None]
    at = qkv + (place[:, None] * ALL + head) * D + half
    a = tl.load(at, mask=here, other=0.0).to(tl.float32)
    b = tl.load(at + D // 2, mask=here, other=0.0).to(tl.float32)
    turned = here & (place[:, None] * 0 + head < VALUES)
    c = tl.load(cos + place[:, None] * (D // 2) + half, mask=turned, other=1.0).to(tl.float32)
    s = tl.load(sin + place[:, None] * (D // 2) + half, mask=turned, other=0.0).to(tl.float32)
    to = out + (rows * first + place[:, None] * count + head - first) * D + half
    tl.store(to, (a * c - b * s).to(out.dtype.element_ty), mask=here)
    tl.store(to + D // 2, (b * c + a * s).to(out.dtype.element_ty), mask=here)


def apart(qkv: Tensor, cos: Tensor, sin: Tensor, kv_heads: int, early: bool = True) -> list[Tensor]:
    """Queries, keys, both turned by cos, sin [n, D / 2], and values [n, heads, D] of rows [n, all heads D].

    Oracle: RoPE in plain torch.
    """
    rows, dim = len(qkv), 2 * cos.shape[-1]
    every, out, block = qkv.shape[1] // dim, torch.empty_like(qkv), 16 if len(qkv) > 16 else 1
    sizes = [every - 2 * kv_heads, kv_heads, kv_heads]
    _apart[(triton.cdiv(rows, block), every)](
        qkv, cos, sin, out, rows, KEYS=sizes[0], VALUES=every - kv_heads, ALL=every, D=dim, N=block,
        num_warps=1 if block == 1 else 4, **launching(qkv.device, early),
    )  # fmt: skip
    parts = torch.split(out.view(-1, dim), [rows * size for size in sizes])
    return [part.view(rows, -1, dim) for part in parts]


@triton.jit
def _turned_pieces(
    qkv, cos, sin, keys_at, values_at, length, sums, tops, totals, scale, slots,
    KIND: tl.constexpr, H: tl.constexpr, G: tl.constexpr, R: tl.constexpr, D: tl.constexpr,
    P: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    """One piece of one KV head: slots are read first, then queries and the new entry, which are turned."""
    row, piece = tl.program_id(0), tl.program_id(1)  # row: pot and KV head
    pot, head = row // H, row % H
    member, half, column = tl.arange(0, R), tl.arange(0, D // 2), tl.arange(0, D)
    if EARLY:
        gdc_launch_dependents()
    filled = tl.load(length + pot)
    keys = head_of_pot(keys_at, row, slots, KIND, H, D)
    values = head_of_pot(values_at, row, slots, KIND, H, D)
    place = piece * P + tl.arange(0, P)
    seen = (place < filled) & (place < slots)
    key_a = tl.load(keys + place[:, None] * D + half, mask=seen[:, None], other=0.0)
    key_b = tl.load(keys + place[:, None] * D + D // 2 + half, mask=seen[:, None], other=0.0)
    value = tl.load(values + place[:, None] * D + column, mask=seen[:, None], other=0.0)
    if EARLY:
        gdc_wait()
    given = qkv + pot.to(tl.int64) * (H * (G + 2) * D)
    c = tl.load(cos + pot * (D // 2) + half).to(tl.float32)[None, :]
    s = tl.load(sin + pot * (D // 2) + half).to(tl.float32)[None, :]
    asks = given + (head * G + member)[:, None] * D + half
    a = tl.load(asks, mask=(member < G)[:, None], other=0.0).to(tl.float32)
    b = tl.load(asks + D // 2, mask=(member < G)[:, None], other=0.0).to(tl.float32)
    query_a, query_b = (a * c - b * s).to(KIND), (b * c + a * s).to(KIND)
    fresh = given + (H * G + head + tl.arange(0, 1))[:, None] * D + half
    a, b = tl.load(fresh).to(tl.float32), tl.load(fresh + D // 2).to(tl.float32)
    new_a, new_b = (a * c - b * s).to(KIND), (b * c + a * s).to(KIND)
    new_value = tl.load(given + (H * G + H + head) * D + column)
    logits = tl.dot(query_a, tl.trans(key_a))
    logits = tl.dot(query_b, tl.trans(key_b), logits)
    logits = tl.where(seen[None, :], logits * scale, float("-inf"))
    own = (filled >= piece * P) & (filled < (piece + 1) * P) & (filled < slots)
    newest = tl.sum(query_a.to(tl.float32) * new_a.to(tl.float32), 1)
    newest += tl.sum(query_b.to(tl.float32) * new_b.to(tl.float32), 1)
    newest = tl.where(own, newest * scale, float("-inf"))
    top = tl.maximum(tl.max(logits, 1), newest)
    base = tl.where(top == float("-inf"), 0.0, top)
    share, newest = tl.exp(logits - base[:, None]), tl.exp(newest - base)
    out = tl.dot(share.to(KIND), value) + newest[:, None] * new_value.to(tl.float32)[None, :]
    kept, there = (row * tl.num_programs(1) + piece) * R + member, member < G
    tl.store(sums + kept[:, None] * D + column, out, mask=there[:, None])
    tl.store(tops + kept, top, mask=there)
    tl.store(totals + kept, tl.sum(share, 1) + newest, mask=there)
    if own:
        one = filled + tl.arange(0, 1)
        tl.store(keys + one[:, None] * D + half, new_a)
        tl.store(keys + one[:, None] * D + D // 2 + half, new_b)
        tl.store(values + filled * D + column, new_value)


def turns(qkv: Tensor, dim: int, group: int, slots: int) -> bool:
    """Say whether `attend_turned` knows this type and these shapes."""
    return qkv.dtype in HALF and dim in (64, 128) and group <= ROWS and slots <= PIECE * MOST


def attend_turned(
    qkv: Tensor, cos: Tensor, sin: Tensor, keys_at: Tensor, values_at: Tensor, length: Tensor, slots: int,
    scale: float, kv_heads: int,
) -> Tensor:  # fmt: skip
    """Attention [N, Hq D] of one new token a row, whose heads [N, (Hq + 2 Hkv) D] are not turned yet.

    Entries are written as by `attend_rows`. Oracle: RoPE and `attend_rows`.
    """
    many, dim, device = len(qkv), 2 * cos.shape[-1], qkv.device
    group, pieces = qkv.shape[1] // dim // kv_heads - 2, triton.cdiv(slots, PIECE)
    sums = torch.empty(many * kv_heads, pieces, ROWS, dim, dtype=torch.float32, device=device)
    tops, totals = torch.empty(2, many * kv_heads, pieces, ROWS, dtype=torch.float32, device=device)
    out = torch.empty(many, kv_heads * group, 1, dim, dtype=qkv.dtype, device=device)
    _turned_pieces[(many * kv_heads, pieces)](
        qkv, cos, sin, keys_at, values_at, length, sums, tops, totals, scale, slots,
        KIND=HALF[qkv.dtype], H=kv_heads, G=group, R=ROWS, D=dim, P=PIECE, num_warps=4, **launching(device),
    )  # fmt: skip
    return join(sums, tops, totals, out, group, early=True).view(many, -1)
