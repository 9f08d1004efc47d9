"""Triton kernels that move slots: a chunk's new entries, and the slots a distillation keeps in all layers.

Each has a slow, obvious twin in plain torch that is its oracle, named in its docstring.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from infinipot.core.columns import COLUMNS
from infinipot.core.cuda.attention_kernels import HALF

# A layer's addresses in a table: one a column, in the order of `columns.COLUMNS`.
STRIDE = tl.constexpr(len(COLUMNS))
BLOCK = 64  # entries that a program appends
KEYS, VALUES, SOURCE, NOVELTY, SUMMED, SENTENCE, ANCHORS, WRITTEN = (
    tl.constexpr(at) for at in range(len(COLUMNS))
)


# A chunk's entries --------------------------------------------------------------


@triton.jit
def _turn(source, to, place, here, cos, sin, D: tl.constexpr):
    """Turn rows that begin at `source` by the angles of their places, and write them from `to` on."""
    half = tl.arange(0, D // 2)
    a = tl.load(source + half, mask=here, other=0.0).to(tl.float32)
    b = tl.load(source + D // 2 + half, mask=here, other=0.0).to(tl.float32)
    c = tl.load(cos + place * (D // 2) + half, mask=here, other=0.0).to(tl.float32)
    s = tl.load(sin + place * (D // 2) + half, mask=here, other=0.0).to(tl.float32)
    tl.store(to + half, (a * c - b * s).to(to.dtype.element_ty), mask=here)
    tl.store(to + D // 2 + half, (b * c + a * s).to(to.dtype.element_ty), mask=here)


@triton.jit
def _append(
    keys, values, to_keys, to_values, source, novelty, running, dropped, queries, cos, sin,
    fill, count, slots, entries, kb, kh, kn, vb, vh, vn, qb, qh, qn,
    H: tl.constexpr, Q: tl.constexpr, D: tl.constexpr, N: tl.constexpr, TURN: tl.constexpr,
):  # fmt: skip
    """One head's block of new entries; programs beyond the KV heads turn queries where they are."""
    row, block = tl.program_id(0), tl.program_id(1)
    place, column = block * N + tl.arange(0, N), tl.arange(0, D)
    here = place < count
    if row < entries:
        batch, head = row // H, row % H
        to = row.to(tl.int64) * slots + fill + place
        begin = keys + batch * kb + head * kh + place[:, None] * kn
        if TURN:
            _turn(begin, to_keys + to[:, None] * D, place[:, None], here[:, None], cos, sin, D)
        else:
            key = tl.load(begin + column, mask=here[:, None])
            tl.store(to_keys + to[:, None] * D + column, key, mask=here[:, None])
        value = tl.load(values + batch * vb + head * vh + place[:, None] * vn + column, mask=here[:, None])
        tl.store(to_values + to[:, None] * D + column, value, mask=here[:, None])
        tl.store(source + to, tl.load(dropped) + fill + place, mask=here)
        nothing = tl.zeros((N,), tl.float32)
        tl.store(novelty + to, nothing, mask=here)
        tl.store(running + to, nothing, mask=here)
    elif TURN:
        asked = row - entries
        asks = queries + asked // Q * qb + asked % Q * qh + place[:, None] * qn
        _turn(asks, asks, place[:, None], here[:, None], cos, sin, D)


def append(
    keys: Tensor,
    values: Tensor,
    into: list[Tensor],
    dropped: Tensor,
    fill: int,
    turn: list[Tensor] | None = None,
) -> None:
    """Write new entries [B, Hkv, n, D] after slot `fill` of a layer's columns. Oracle: `PotLayer.append`.

    into: `columns.SLOTS`, in their order: keys, values [B, Hkv, S, D], then numbers [B, Hkv, S]; sentences
    are left as they are.
    turn: queries [B, Hq, n, D], turned in place by cosines and sines [n, D / 2], as keys are on their way.
    """
    batch, heads, count, dim = keys.shape
    if not turn:
        keys, values = (x if x.stride(-1) == 1 else x.contiguous() for x in (keys, values))
    queries, cos, sin = turn or (keys, keys, keys)
    more = queries.shape[1] if turn else 0
    _append[(batch * (heads + more), triton.cdiv(count, BLOCK))](
        keys, values, *into[: SENTENCE.value], dropped, queries, cos, sin,
        fill, count, into[0].shape[2], batch * heads,
        *keys.stride()[:3], *values.stride()[:3], *queries.stride()[:3],
        H=heads, Q=max(1, more), D=dim, N=BLOCK, TURN=bool(turn), num_warps=4,
    )  # fmt: skip


# Keeping slots, all layers at once ------------------------------------------------


@triton.jit
def move(address, KIND: tl.constexpr, begin, slot, place, here):
    """Move a block of a column's numbers to their places: all are read before any is written."""
    column = tl.load(address).to(tl.pointer_type(KIND)) + begin
    found = tl.load(column + slot, mask=here)
    tl.debug_barrier()
    tl.store(column + place, found, mask=here)


@triton.jit
def _keep(
    table, slots, cos, sin, anchored, count, capacity, max_anchors,
    KIND: tl.constexpr, RUNNING: tl.constexpr, NUMBERED: tl.constexpr,
    BH: tl.constexpr, D: tl.constexpr, N: tl.constexpr,
):  # fmt: skip
    """Move one head's chosen slots to the front; keys turn from their anchors.

    Slots are sorted, so a block's sources lie at or after its targets: going through them in
    order, with all of a block read before any of it is written, nothing is lost in place.
    """
    row, what = tl.program_id(0), tl.program_id(1)
    layer, inner = row // BH, (row % BH).to(tl.int64)
    at = table + layer * STRIDE
    half = tl.arange(0, D // 2)
    start = 0
    while start < count:
        place = start + tl.arange(0, N)
        here = place < count
        slot = tl.load(slots + row.to(tl.int64) * count + place, mask=here, other=0)
        if what == 0:
            keys = tl.multiple_of(tl.load(at + KEYS).to(tl.pointer_type(KIND)), 16) + inner * capacity * D
            anchors = tl.multiple_of(tl.load(at + ANCHORS).to(tl.pointer_type(KIND)), 16)
            anchors += inner * max_anchors * D
            written = tl.load(at + WRITTEN).to(tl.pointer_type(tl.int64)) + inner * max_anchors
            old = here & (slot < anchored)
            new = here & (slot >= anchored)
            from_new, from_old = keys + slot[:, None] * D + half, anchors + slot[:, None] * D + half
            first = tl.where(
                old[:, None],
                tl.load(from_old, mask=old[:, None], other=0.0),
                tl.load(from_new, mask=new[:, None], other=0.0),
            )
            second = tl.where(
                old[:, None],
                tl.load(from_old + D // 2, mask=old[:, None], other=0.0),
                tl.load(from_new + D // 2, mask=new[:, None], other=0.0),
            )
            born = tl.where(old, tl.load(written + slot, mask=old, other=0), slot)
            turn = (born - place)[:, None] * (D // 2) + half
            c = tl.load(cos + turn, mask=here[:, None], other=0.0)
            s = tl.load(sin + turn, mask=here[:, None], other=0.0)
            a, b = first.to(tl.float32), second.to(tl.float32)
            tl.debug_barrier()
            to = place[:, None] * D + half
            tl.store(keys + to, (a * c + b * s).to(KIND), mask=here[:, None])
            tl.store(keys + to + D // 2, (b * c - a * s).to(KIND), mask=here[:, None])
            anchor = here & (place * 0 + count <= max_anchors)  # more have no room: these are their own
            tl.store(anchors + to, first, mask=anchor[:, None])
            tl.store(anchors + to + D // 2, second, mask=anchor[:, None])
            tl.store(written + place, born, mask=anchor)
        elif what == 1:
            values = tl.multiple_of(tl.load(at + VALUES).to(tl.pointer_type(KIND)), 16) + inner * capacity * D
            column = tl.arange(0, D)
            value = tl.load(values + slot[:, None] * D + column, mask=here[:, None])
            tl.debug_barrier()
            tl.store(values + place[:, None] * D + column, value, mask=here[:, None])
        else:
            move(at + SOURCE, tl.int64, inner * capacity, slot, place, here)
            move(at + NOVELTY, tl.float32, inner * capacity, slot, place, here)
            if RUNNING:
                move(at + SUMMED, tl.float32, inner * capacity, slot, place, here)
            if NUMBERED:
                move(at + SENTENCE, tl.int32, inner * capacity, slot, place, here)
        start += N


def keep(
    table: Tensor, slots: Tensor, cos: Tensor, sin: Tensor, anchored: int, capacity: int, max_anchors: int,
    dtype: torch.dtype, running: bool, numbered: bool,
) -> None:  # fmt: skip
    """Keep the slots [L, B, Hkv, n] of all layers, positions reset. Oracle: `PotLayer.keep`.

    table [L, columns] holds the addresses of each layer's columns, in their order; cos, sin
    [span, D / 2] are its rotation's tables. More than `max_anchors` slots leave the anchors as they were.
    """
    layers, batch, heads, count = slots.shape
    _keep[(layers * batch * heads, 3)](
        table, slots, cos, sin, anchored, count, capacity, max_anchors,
        KIND=HALF[dtype], RUNNING=running, NUMBERED=numbered,
        BH=batch * heads, D=2 * cos.shape[-1], N=64, num_warps=8,
    )  # fmt: skip
