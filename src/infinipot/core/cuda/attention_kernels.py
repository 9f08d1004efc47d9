"""Triton kernels of attention: new tokens of several pots, a row each, and the catalyst's scores.

Each has a slow, obvious twin in plain torch that is its oracle, named in its docstring. Addresses of several
pots' buffers come as tables of pointers, so that a captured graph can be given other pots.
"""

from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

from infinipot.core.cuda.units import gdc_launch_dependents, gdc_wait, launching

PIECE = 256  # slots one program of the decoding kernel reads, at most
LEAST_PIECE, PROGRAMS = 64, 128  # and at least; programs wanted, to keep a large chip busy with one pot
MOST_PIECES = 127  # of a pot, about: they are joined by one program
ROWS = 16  # query heads that share a KV head, padded to what the matrix units take
HALF = {torch.bfloat16: tl.bfloat16, torch.float16: tl.float16}
DIMS = (64, 128, 256)


def serves(queries: Tensor, keys: Tensor) -> bool:
    """Say whether the kernels know these types and shapes: queries [B, Hq, Q, D], keys [B, Hkv, S, D]."""
    dim, group = keys.shape[-1], queries.shape[1] // keys.shape[1]
    return keys.dtype in HALF and dim in DIMS and queries.shape[-1] == dim and group <= ROWS


# One new token for each of several pots ---------------------------------------


def piece_of(slots: int, rows: int, programs: int, most: int) -> int:
    """Slots of a program, a power of two, where `rows` of pots and heads have so many slots each."""
    wanted: int = triton.next_power_of_2(max(LEAST_PIECE, slots * rows // programs, slots // MOST_PIECES))
    return min(most, wanted)


@triton.jit
def head_of_pot(at, row, slots, KIND: tl.constexpr, H: tl.constexpr, D: tl.constexpr):
    """Where the slots of a row's KV head begin, in the pot that a table of addresses names for the row."""
    pot, begin = row // H, (row % H).to(tl.int64) * slots * D
    return tl.multiple_of(tl.load(at + pot).to(tl.pointer_type(KIND)), 16) + begin


@triton.jit
def _write(
    fresh_keys, fresh_values, keys_at, values_at, length, slots,
    KIND: tl.constexpr, H: tl.constexpr, D: tl.constexpr,
):  # fmt: skip
    """Write one KV head's new entry of one row."""
    row, column = tl.program_id(0), tl.arange(0, D)
    filled = tl.load(length + row // H)
    if (filled >= 0) & (filled < slots):
        keys = head_of_pot(keys_at, row, slots, KIND, H, D)
        values = head_of_pot(values_at, row, slots, KIND, H, D)
        tl.store(keys + filled * D + column, tl.load(fresh_keys + row * D + column))
        tl.store(values + filled * D + column, tl.load(fresh_values + row * D + column))


@triton.jit
def _pieces(
    queries, fresh_keys, fresh_values, keys_at, values_at, length, sums, tops, totals, scale, slots,
    KIND: tl.constexpr, H: tl.constexpr, G: tl.constexpr, R: tl.constexpr, D: tl.constexpr,
    P: tl.constexpr, N: tl.constexpr, WRITES: tl.constexpr,
):  # fmt: skip
    """Write the new entry; one head's piece of values weighted by exp(logit - top), with top and total."""
    row, piece = tl.program_id(0), tl.program_id(1)  # row: pot and KV head
    filled = tl.load(length + row // H)
    keys = head_of_pot(keys_at, row, slots, KIND, H, D)
    values = head_of_pot(values_at, row, slots, KIND, H, D)
    member, column = tl.arange(0, R), tl.arange(0, D)
    if (filled >= piece * P) & (filled < (piece + 1) * P) & (filled < slots) & WRITES:
        tl.store(keys + filled * D + column, tl.load(fresh_keys + row * D + column))
        tl.store(values + filled * D + column, tl.load(fresh_values + row * D + column))
        tl.debug_barrier()
    reach = (filled + 1 - piece * P).to(tl.int32)  # slots of this piece that are seen
    query = tl.load(queries + (row * G + member)[:, None] * D + column, mask=(member < G)[:, None], other=0.0)
    top = tl.full((R,), float("-inf"), tl.float32)
    total = tl.zeros((R,), tl.float32)
    out = tl.zeros((R, D), tl.float32)
    for start in range(0, tl.minimum(reach, P), N):
        place = piece * P + start + tl.arange(0, N)
        seen = (place <= filled) & (place < slots)
        at = place[:, None] * D + column
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
    kept = (row * tl.num_programs(1) + piece) * R + member
    tl.store(sums + kept[:, None] * D + column, out)
    tl.store(tops + kept, top)
    tl.store(totals + kept, total)


@triton.jit
def _join(
    sums, tops, totals, out, pieces,
    G: tl.constexpr, R: tl.constexpr, D: tl.constexpr, C: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    """One query head's pieces as one."""
    if EARLY:
        gdc_launch_dependents()
        gdc_wait()
    row, member = tl.program_id(0), tl.program_id(1)
    piece, column = tl.arange(0, C), tl.arange(0, D)
    here = piece < pieces
    at = (row * pieces + piece) * R + member
    top = tl.load(tops + at, mask=here, other=float("-inf"))
    best = tl.max(top, 0)
    weight = tl.exp(top - tl.where(best == float("-inf"), 0.0, best))  # a row that is nobody's saw nothing
    total = tl.sum(weight * tl.load(totals + at, mask=here, other=0.0), 0)
    parts = tl.load(sums + at[:, None] * D + column, mask=here[:, None], other=0.0)
    joined = tl.sum(weight[:, None] * parts, 0) / tl.where(total > 0, total, 1.0)
    tl.store(out + (row * G + member) * D + column, joined.to(out.dtype.element_ty))


def join(sums: Tensor, tops: Tensor, totals: Tensor, out: Tensor, group: int, early: bool = False) -> Tensor:
    """Put pieces [N Hkv, pieces, rows, ...] of attention together, into `out` [N, Hq, 1, D]."""
    rows, pieces, padded, dim = sums.shape
    _join[(rows, group)](
        sums, tops, totals, out, pieces,
        G=group, R=padded, D=dim, C=triton.next_power_of_2(pieces), num_warps=4,
        **launching(out.device, early),
    )  # fmt: skip
    return out


def attend_rows(
    queries: Tensor, keys: Tensor, values: Tensor, keys_at: Tensor, values_at: Tensor, length: Tensor,
    slots: int, scale: float, shared: bool = False,
) -> Tensor:  # fmt: skip
    """Attention [N, Hq, 1, D] of one new token a row, whose keys and values [N, Hkv, 1, D] are written first.

    keys_at, values_at [N] point to contiguous buffers [Hkv, slots, D]; the new entry goes to slot
    length [N], and nowhere where that is `slots`, or -1 for a row that is nobody's. Where rows are `shared`,
    several may be of one pot, and see each other's entries. Oracle: `attend_fixed`.
    """
    many, heads, _, dim = queries.shape
    kv_heads = keys.shape[1]
    fresh = keys.contiguous(), values.contiguous()
    sizes = {"KIND": HALF[keys.dtype], "H": kv_heads, "D": dim}
    if shared:
        _write[(many * kv_heads,)](*fresh, keys_at, values_at, length, slots, **sizes, num_warps=1)
    piece = piece_of(slots, many * kv_heads, PROGRAMS, PIECE)
    group, pieces, device = heads // kv_heads, triton.cdiv(slots, piece), queries.device
    sums = torch.empty(many * kv_heads, pieces, ROWS, dim, dtype=torch.float32, device=device)
    tops, totals = torch.empty(2, many * kv_heads, pieces, ROWS, dtype=torch.float32, device=device)
    out = torch.empty(many, heads, 1, dim, dtype=queries.dtype, device=device)
    _pieces[(many * kv_heads, pieces)](
        queries.contiguous(), *fresh, keys_at, values_at, length, sums, tops, totals, scale, slots,
        **sizes, G=group, R=ROWS, P=piece, N=64, WRITES=not shared, num_warps=4, num_stages=3,
    )  # fmt: skip
    return join(sums, tops, totals, out, group)


# What the catalyst attends to ---------------------------------------------------


@triton.jit
def _piece(keys, row, piece, seen, kb, kh, H: tl.constexpr, D: tl.constexpr, N: tl.constexpr):
    """Places of one piece of a KV head's keys, and the keys there."""
    place = piece * N + tl.arange(0, N)
    at = keys + row // H * kb + row % H * kh + place[:, None] * D + tl.arange(0, D)
    return place, tl.load(at, mask=(place < seen)[:, None], other=0.0)


@triton.jit
def _catalyst_logits(
    queries, row, start, key, place, scale, count, asks, seen, qb, qh, qn,
    H: tl.constexpr, G: tl.constexpr, D: tl.constexpr, M: tl.constexpr,
):  # fmt: skip
    """Indices of M catalyst queries from `start` on, which of them there are, and their logits of a piece."""
    index = start + tl.arange(0, M)
    there, ask = index < asks, index % count
    where = queries + row // H * qb + (row % H * G + index // count) * qh + ask * qn
    query = tl.load(where[:, None] + tl.arange(0, D), mask=there[:, None], other=0.0)
    visible = (place[None, :] <= seen - count + ask[:, None]) & (place < seen)[None, :]
    return index, there, tl.where(visible, tl.dot(query, tl.trans(key)) * scale, float("-inf"))


@triton.jit
def _tops(
    queries, keys, tops, totals, scale, count, asks, seen, qb, qh, qn, kb, kh,
    H: tl.constexpr, G: tl.constexpr, D: tl.constexpr, N: tl.constexpr, M: tl.constexpr,
):  # fmt: skip
    """Maximum and total, over one piece of the keys, of every catalyst query of a KV head."""
    row, piece = tl.program_id(0), tl.program_id(1)
    place, key = _piece(keys, row, piece, seen, kb, kh, H, D, N)
    start = 0
    while start < asks:
        index, there, logits = _catalyst_logits(
            queries, row, start, key, place, scale, count, asks, seen, qb, qh, qn, H, G, D, M
        )
        top = tl.max(logits, 1)
        base = tl.where(top == float("-inf"), 0.0, top)
        total = tl.sum(tl.exp(logits - base[:, None]), 1)
        to = (row * tl.num_programs(1) + piece) * asks + index
        tl.store(tops + to, top, mask=there)
        tl.store(totals + to, total, mask=there)
        start += M


@triton.jit
def _shares(
    queries, keys, tops, totals, out, scale, count, asks, seen, pieces, qb, qh, qn, kb, kh, sb, sh, sn,
    H: tl.constexpr, G: tl.constexpr, D: tl.constexpr, N: tl.constexpr, M: tl.constexpr, C: tl.constexpr,
    KNOWN: tl.constexpr,
):  # fmt: skip
    """What the keys of a piece receive; `tops` and `totals` are of `_tops`, or log-sum-exps of two parts."""
    row, piece = tl.program_id(0), tl.program_id(1)
    place, key = _piece(keys, row, piece, seen, kb, kh, H, D, N)
    received, other = tl.zeros((N,), tl.float32), tl.arange(0, C)
    start = 0
    while start < asks:
        index, there, logits = _catalyst_logits(
            queries, row, start, key, place, scale, count, asks, seen, qb, qh, qn, H, G, D, M
        )
        if KNOWN:
            of = row // H * sb + (row % H * G + index // count) * sh + index % count * sn
            new, old = tl.load(tops + of, mask=there, other=0.0), tl.load(totals + of, mask=there, other=0.0)
            base = tl.maximum(new, old)
            total = tl.exp(new - base) + tl.exp(old - base)
        else:
            of = (row * pieces + other)[:, None] * asks + index[None, :]
            known = (other < pieces)[:, None] & there[None, :]
            its_top = tl.load(tops + of, mask=known, other=float("-inf"))
            top = tl.max(its_top, 0)
            base = tl.where(top == float("-inf"), 0.0, top)
            its_total = tl.load(totals + of, mask=known, other=0.0)
            total = tl.sum(its_total * tl.exp(its_top - base[None, :]), 0)
        share = tl.exp(logits - base[:, None]) / tl.where(total > 0, total, 1.0)[:, None]
        received += tl.sum(tl.where(there[:, None], share, 0.0), 0)
        start += M
    tl.store(out + row * seen + place, received / G, mask=place < seen)


def received(queries: Tensor, keys: Tensor, scale: float, sums: Sequence[Tensor] = ()) -> Tensor:
    """Attention [B, Hkv, S] that keys [B, Hkv, S, D] receive from the last queries. Oracle: `received`.

    `sums` are log-sum-exps [B, Hq, Q] of the logits over new and cached keys, where both are known already.
    """
    batch, heads, count, dim = queries.shape
    kv_heads, seen = keys.shape[1], keys.shape[2]
    group, block = heads // kv_heads, 128
    pieces = triton.cdiv(seen, block)
    queries = queries if queries.stride(-1) == 1 else queries.contiguous()
    out = torch.empty(batch, kv_heads, seen, dtype=torch.float32, device=keys.device)
    sizes = {"H": kv_heads, "G": group, "D": dim, "N": block, "M": 64, "num_warps": 4}
    strides = (*queries.stride()[:3], *keys.stride()[:2])
    grid = (batch * kv_heads, pieces)
    known = [one.stride() for one in sums] == 2 * [sums[0].stride()] if sums else False
    tops, totals = sums if known else out.new_empty(2, batch * kv_heads, pieces, group * count)
    if not known:
        _tops[grid](queries, keys, tops, totals, scale, count, group * count, seen, *strides, **sizes)
    _shares[grid](
        queries, keys, tops, totals, out, scale, count, group * count, seen, pieces, *strides,
        *tops.stride()[:3], C=1 if known else triton.next_power_of_2(pieces), KNOWN=known, **sizes,
    )  # fmt: skip
    return out


# Two attentions as one --------------------------------------------------------------


@triton.jit
def _merge(
    new, old, new_lse, old_lse, rows, nb, nh, nq, ob, oh, oq,
    H: tl.constexpr, D: tl.constexpr, N: tl.constexpr,
):  # fmt: skip
    head, block = tl.program_id(0), tl.program_id(1)
    place, column = block * N + tl.arange(0, N), tl.arange(0, D)
    here = place < rows
    b, h = head // H, head % H
    at = head.to(tl.int64) * rows + place
    gap = tl.load(old_lse + at, mask=here, other=0.0) - tl.load(new_lse + at, mask=here, other=0.0)
    share = tl.sigmoid(gap)[:, None]
    to = new + b * nb + h * nh + place[:, None] * nq + column
    a = tl.load(to, mask=here[:, None], other=0.0).to(tl.float32)
    at_old = old + b * ob + h * oh + place[:, None] * oq + column
    c = tl.load(at_old, mask=here[:, None], other=0.0).to(tl.float32)
    tl.store(to, (a + share * (c - a)).to(new.dtype.element_ty), mask=here[:, None])


def merge(new: Tensor, old: Tensor, new_lse: Tensor, old_lse: Tensor) -> Tensor:
    """Two attentions [B, H, Q, D] over different keys as one, in the first's place. Oracle: `_merged`."""
    batch, heads, rows, dim = new.shape
    _merge[(batch * heads, triton.cdiv(rows, 32))](
        new, old, new_lse.contiguous(), old_lse.contiguous(), rows, *new.stride()[:3], *old.stride()[:3],
        H=heads, D=dim, N=32, num_warps=4,
    )  # fmt: skip
    return new
