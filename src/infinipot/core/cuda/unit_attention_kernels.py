"""Attention on pots in 8 bits, laid out for the matrix units in Gluon.

A program is one warp. The next keys and values are on their way into shared memory while these are worked on;
lanes take 16 bytes of them as the units want them, and make 16 bits of each in few packed instructions. Which
column of a product is which dimension does not matter as long as both sides agree, so lanes keep what they
took: only names of axes change on the way (`reshape`, `permute`); `assert_trivial` holds the compiler to it.
"""

import torch
import triton
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import async_copy, mma_v2

from infinipot.core.cuda.attention_kernels import piece_of

DIM = 128  # of a head, that the layouts below are made for
BLOCK = 64  # slots that share one turned query
ROWS = 8  # query heads that share a KV head, at most
PIECE, PROGRAMS = 2048, 1024  # slots of one program at most; programs wanted: as many as run at once
LARGEST = gl.constexpr(127.0)
LEAST = gl.constexpr(1.1754943508222875e-38)  # the least normal float32: no division by zero
LOG2E = gl.constexpr(1.4426950408889634)
LIFT = gl.constexpr(256.0)  # keeps small shares times small scales within float16

# Four keys of each half: bytes below the exponent of 1024 are 1152 + x; then a c - b s and b c + a s.
TURN = gl.constexpr("""{
.reg .b32 a, b, p, q, r, t, m, z;
mov.b32 z, 0x64806480;
xor.b32 a, $4, 0x80808080; xor.b32 b, $5, 0x80808080;
prmt.b32 p, a, 0x64646464, 0x4140; prmt.b32 q, b, 0x64646464, 0x4140;
prmt.b32 r, a, 0x64646464, 0x4342; prmt.b32 t, b, 0x64646464, 0x4342;
sub.rn.f16x2 p, p, z; sub.rn.f16x2 q, q, z; sub.rn.f16x2 r, r, z; sub.rn.f16x2 t, t, z;
mul.rn.f16x2 m, q, $8; neg.f16x2 m, m; fma.rn.f16x2 $0, p, $6, m;
mul.rn.f16x2 m, t, $9; neg.f16x2 m, m; fma.rn.f16x2 $1, r, $7, m;
mul.rn.f16x2 m, p, $8; fma.rn.f16x2 $2, q, $6, m;
mul.rn.f16x2 m, r, $9; fma.rn.f16x2 $3, t, $7, m;
}""")
# Four values of two slots, 1152 + x, a pair of slots to a register: the first two dimensions, and the last.
PAIRS = gl.constexpr("""{
.reg .b32 p, q, r, t, z;
mov.b32 z, 0x64806480;
prmt.b32 p, $4, $5, 0x0400; prmt.b32 q, $4, $5, 0x0501;
prmt.b32 r, $4, $5, 0x0602; prmt.b32 t, $4, $5, 0x0703;
lop3.b32 $0, p, 0x00FF00FF, z, 0x6A; lop3.b32 $1, q, 0x00FF00FF, z, 0x6A;
lop3.b32 $2, r, 0x00FF00FF, z, 0x6A; lop3.b32 $3, t, 0x00FF00FF, z, 0x6A;
}""")
RAISED = gl.constexpr(1152.0)

_ROW, _LANES = [[0, 1], [0, 2], [0, 4], [0, 8]], [[0, 16], [0, 32], [1, 0], [2, 0], [4, 0]]
# Half a query or key: 16 of a row a lane, four lanes a row, eight rows at a time.
EIGHT = gl.constexpr(gl.DistributedLinearLayout(_ROW, _LANES, [], [], [8, 64]))
SIXTEEN = gl.constexpr(gl.DistributedLinearLayout([*_ROW, [8, 0]], _LANES, [], [], [16, 64]))
# Values: 16 of a row a lane, eight lanes a row, four rows at a time. Angles: eight a lane at a time.
VALUES = gl.constexpr(
    gl.DistributedLinearLayout(
        [*_ROW, [1, 0], [8, 0]], [[2, 0], [4, 0], [0, 16], [0, 32], [0, 64]], [], [], [16, 128]
    )
)
ANGLES = gl.constexpr(
    gl.DistributedLinearLayout([[1], [2], [4], [256], [512]], [[8], [16], [32], [64], [128]], [], [], [1024])
)


@gluon.jit
def _queries(x, of: gl.constexpr):
    """[8, 64] as the second operand [64, 8] of a product, rows in the units' order."""
    x = x.to(gl.float16).reshape([8, 4, 4, 2, 2]).permute(2, 3, 1, 4, 0).reshape([64, 8])
    return gl.convert_layout(x, of, assert_trivial=True)


@gluon.jit
def _keys(x, of: gl.constexpr):
    """[16, 64] as the first operand, columns in the order of `_queries`' rows."""
    x = x.reshape([16, 4, 4, 2, 2]).permute(0, 2, 3, 1, 4).reshape([16, 64])
    return gl.convert_layout(x, of, assert_trivial=True)


@gluon.jit
def _angles(x, of: gl.constexpr):
    """[1024] as `_near` orders them for the units, as [16, 64]."""
    x = x.reshape([4, 8, 4, 2, 2, 2]).permute(4, 1, 2, 0, 3, 5).reshape([16, 64])
    return gl.convert_layout(x, of, assert_trivial=True)


@gluon.jit
def _values(x, of: gl.constexpr):
    """8 bits [16, 128], raised, as the first operand [128, 16]; row r is dimension 16 (r % 8) + r // 8."""
    even, odd = gl.split(x.reshape([8, 2, 128]).permute(0, 2, 1))
    first, last = gl.inline_asm_elementwise(
        PAIRS, "=r,=r,=r,=r,r,r", [even, odd], dtype=(gl.float16, gl.float16), is_pure=True, pack=4
    )
    x = gl.join(first, last).reshape([8, 8, 4, 2, 2, 2]).permute(2, 5, 3, 1, 0, 4).reshape([128, 16])
    return gl.convert_layout(x, of, assert_trivial=True)


@gluon.jit
def _copy(into, at, wanted, WIDTH: gl.constexpr):
    """Send four parts of 16 slots on their way, if wanted, each in so many pieces of a row."""
    if wanted:
        for part in gl.static_range(4):
            for piece in gl.static_range(WIDTH):
                to = into.index(part * WIDTH + piece)
                async_copy.async_copy_global_to_shared(to, at + part * 16 * 128 + piece * 64)
    async_copy.commit_group()


@gluon.jit
def _shares(x, of: gl.constexpr):
    """Sums of a product [16, 8] as the second operand of another: lanes' rows become their columns."""
    x = gl.inline_asm_elementwise(
        "movmatrix.sync.aligned.m8n8.trans.b16 $0, $1;", "=r,r", [x], dtype=gl.float16, is_pure=True, pack=2
    )
    return gl.convert_layout(x.reshape([2, 8, 8]).permute(0, 2, 1).reshape([16, 8]), of, assert_trivial=True)


@gluon.jit
def _put(into, scale, slot, a, b, half):
    """Halves of an entry into its slot, rounded."""
    size = gl.maximum(gl.max(gl.abs(a), 0), gl.max(gl.abs(b), 0)) / LARGEST
    to, unit = into + slot.to(gl.int64) * 128 + half, gl.maximum(size, LEAST)
    gl.store(to, gl.floor(a / unit + 0.5).to(gl.int8))
    gl.store(to + 64, gl.floor(b / unit + 0.5).to(gl.int8))
    gl.store(scale + slot, size)


@gluon.jit
def _fresh(
    asks, known, new_keys, new_values, keys, values, key_scale, value_scale, offset, cos, sin, filled,
    sums, tops, totals, kept, half, member, scale, slots,
):  # fmt: skip
    """The new entry as a piece: attended to as it is, at its own position, and rounded for later."""
    a, b = gl.load(new_keys + half).to(gl.float32), gl.load(new_keys + 64 + half).to(gl.float32)
    va, vb = gl.load(new_values + half).to(gl.float32), gl.load(new_values + 64 + half).to(gl.float32)
    ask_a = gl.load(asks, mask=known, other=0.0).to(gl.float32)
    ask_b = gl.load(asks + 64, mask=known, other=0.0).to(gl.float32)
    logit = gl.sum(ask_a * a[None, :] + ask_b * b[None, :], 1) * scale
    there = (filled >= 0) & (filled < slots)
    gl.store(tops + kept + member, gl.where(there, logit, float("-inf")))
    gl.store(totals + kept + member, gl.where(there, 1.0, gl.zeros_like(logit)))
    to = sums + (kept + member)[:, None] * 128 + half[None, :]
    gl.store(to, va[None, :] + gl.zeros_like(ask_a), mask=known)
    gl.store(to + 64, vb[None, :] + gl.zeros_like(ask_a), mask=known)
    if there:
        at = filled * 64 + half
        c, s = gl.load(cos + at), gl.load(sin + at)
        turned_a = a * c + b * s - gl.load(offset + half)
        turned_b = b * c - a * s - gl.load(offset + 64 + half)
        _put(keys, key_scale, filled, turned_a, turned_b, half)
        _put(values, value_scale, filled, va, vb, half)


@gluon.jit
def _unit_pieces(
    queries, fresh_keys, fresh_values, keys_at, values_at, key_scale_at, value_scale_at, offset_at,
    cos, sin, near_cos, near_sin, length, sums, tops, totals, scale, slots, pieces,
    H: gl.constexpr, G: gl.constexpr, P: gl.constexpr,
):  # fmt: skip
    """One head's piece of values weighted by exp(logit - top), with both; the last piece is the new entry.

    A block's keys lie at position 0. Turned by their place in the block alone they fit queries that were
    turned back to where the block begins. Whole numbers are turned as they are, in float16; their scale comes
    to the logits, and what the offset adds is a product with the same rows of angles. The last block of a pot
    begins early enough to be whole, and what was seen before does not count again.
    """
    MMA: gl.constexpr = gl.NVMMADistributedLayout([2, 0], [1, 1], [16, 8])
    FIRST: gl.constexpr = gl.DotOperandLayout(0, MMA, 2)
    SECOND: gl.constexpr = gl.DotOperandLayout(1, MMA, 2)
    row, piece = gl.program_id(0), gl.program_id(1)  # row: pot and KV head
    pot, head = row // H, row % H
    filled = gl.load(length + pot).to(gl.int32)
    begin = head.to(gl.int64) * slots
    keys = gl.multiple_of(gl.load(keys_at + pot).to(gl.pointer_type(gl.int8)), 16) + begin * 128
    values = gl.multiple_of(gl.load(values_at + pot).to(gl.pointer_type(gl.int8)), 16) + begin * 128
    key_scale = gl.multiple_of(gl.load(key_scale_at + pot).to(gl.pointer_type(gl.float32)), 16) + begin
    value_scale = gl.multiple_of(gl.load(value_scale_at + pot).to(gl.pointer_type(gl.float32)), 16) + begin
    offset = gl.multiple_of(gl.load(offset_at + pot).to(gl.pointer_type(gl.float32)), 16) + head * 128
    half, member = gl.arange(0, 64, gl.SliceLayout(0, EIGHT)), gl.arange(0, 8, gl.SliceLayout(1, EIGHT))
    asks = queries + (row * G + member)[:, None] * 128 + half[None, :]
    known = (member < G)[:, None] & (half >= 0)[None, :]
    kept = (row * (pieces + 1) + piece) * 8
    if piece == pieces:
        _fresh(
            asks, known, fresh_keys + row * 128, fresh_values + row * 128, keys, values, key_scale,
            value_scale, offset, cos, sin, filled, sums, tops, totals, kept, half, member, scale, slots,
        )  # fmt: skip
        return
    slot_k = gl.arange(0, 16, gl.SliceLayout(1, SIXTEEN))[:, None]
    half_k = gl.arange(0, 64, gl.SliceLayout(0, SIXTEEN))[None, :]
    angle = gl.arange(0, 1024, ANGLES)
    slot_v = gl.arange(0, 16, gl.SliceLayout(1, VALUES))[:, None]
    column_v = gl.arange(0, 128, gl.SliceLayout(0, VALUES))[None, :]
    zero = gl.zeros([16, 8], gl.float32, MMA)
    slot = gl.arange(0, 16, gl.SliceLayout(1, MMA))
    top = gl.full([8], float("-inf"), gl.float32, gl.SliceLayout(0, MMA))
    total = gl.zeros([8], gl.float32, gl.SliceLayout(0, MMA))
    out = gl.zeros([128, 8], gl.float32, MMA)
    end = gl.minimum(gl.minimum((piece + 1) * P, filled), slots)
    from_keys, from_values = keys + slot_k * 128 + half_k, values + slot_v * 128 + column_v
    PLAIN: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [1, 0])
    MIXED: gl.constexpr = gl.SwizzledSharedLayout(16, 1, 8, [1, 0])  # rows begin in different banks
    near_keys = gl.allocate_shared_memory(gl.int8, [8, 16, 64], PLAIN)
    near_values = gl.allocate_shared_memory(gl.int8, [4, 16, 128], MIXED)
    soon = gl.minimum(piece * P, slots - 64).to(gl.int64) * 128
    _copy(near_keys, from_keys + soon, piece * P < end, 2)
    _copy(near_values, from_values + soon, piece * P < end, 1)
    for unseen in range(piece * P, end, 64):
        start = gl.minimum(unseen, slots - 64)
        later = gl.minimum(unseen + 64, slots - 64).to(gl.int64) * 128
        far_c, far_s = gl.load(cos + start * 64 + half)[None, :], gl.load(sin + start * 64 + half)[None, :]
        a = gl.load(asks, mask=known, other=0.0).to(gl.float32) * (scale * LOG2E)
        b = gl.load(asks + 64, mask=known, other=0.0).to(gl.float32) * (scale * LOG2E)
        a, b = a * far_c + b * far_s, b * far_c - a * far_s
        query_a, query_b = _queries(a, SECOND), _queries(b, SECOND)
        low, high = gl.load(offset + half)[None, :], gl.load(offset + 64 + half)[None, :]
        common_c, common_s = _queries(a * low + b * high, SECOND), _queries(b * low - a * high, SECOND)
        logits = ()
        best = gl.full([16, 8], float("-inf"), gl.float32, MMA)
        async_copy.wait_group(1)
        for part in gl.static_range(4):
            place = start + 16 * part
            held_a = near_keys.index(2 * part).load(SIXTEEN)
            held_b = near_keys.index(2 * part + 1).load(SIXTEEN)
            near = 1024 * part + angle
            c, s = _angles(gl.load(near_cos + near), SIXTEEN), _angles(gl.load(near_sin + near), SIXTEEN)
            turned_a, turned_b = gl.inline_asm_elementwise(
                TURN, "=r,=r,=r,=r,r,r,r,r,r,r", [held_a, held_b, c, s],
                dtype=(gl.float16, gl.float16), is_pure=True, pack=4,
            )  # fmt: skip
            found = mma_v2(_keys(turned_b, FIRST), query_b, mma_v2(_keys(turned_a, FIRST), query_a, zero))
            common = mma_v2(_keys(s, FIRST), common_s, mma_v2(_keys(c, FIRST), common_c, zero))
            here = place + slot
            seen = ((here >= unseen) & (here < end))[:, None]
            found = gl.where(seen, found * gl.load(key_scale + here)[:, None] + common, float("-inf"))
            logits = logits + (found,)  # type: ignore[assignment]  # noqa: RUF005  Gluon takes no star
            best = gl.maximum(best, found)
        _copy(near_keys, from_keys + later, unseen + 64 < end, 2)
        async_copy.wait_group(1)
        higher = gl.maximum(top, gl.max(best, 0))
        fade = gl.exp2(top - higher)
        both, raised, shares = zero, zero, ()
        for part in gl.static_range(4):
            place = start + 16 * part
            size = gl.load(value_scale + place + slot, mask=place + slot < end, other=0.0) * LIFT
            share = gl.exp2(logits[part] - higher[None, :])
            both = both + share
            share = (share * size[:, None]).to(gl.float16)
            raised = raised + share.to(gl.float32)
            shares = shares + (share,)  # type: ignore[assignment]  # noqa: RUF005  Gluon takes no star
        out = out * fade[None, :] - (RAISED * gl.sum(raised, 0))[None, :]
        for part in gl.static_range(4):
            held = _values(near_values.index(part).load(VALUES), FIRST)
            out = mma_v2(held, _shares(shares[part], SECOND), out)
        _copy(near_values, from_values + later, unseen + 64 < end, 1)
        total = total * fade + gl.sum(both, 0)
        top = higher
    async_copy.wait_group(0)
    row_o = gl.arange(0, 128, gl.SliceLayout(1, MMA))[:, None]
    member_o = gl.arange(0, 8, gl.SliceLayout(0, MMA))[None, :]
    to = sums + (kept + member_o) * 128 + (row_o % 8) * 16 + row_o // 8
    gl.store(to, out * (1.0 / LIFT), mask=(member_o < G) & (row_o >= 0))
    its_member = gl.arange(0, 8, gl.SliceLayout(0, MMA))
    gl.store(tops + kept + its_member, top * (1.0 / LOG2E))
    gl.store(totals + kept + its_member, total)


_NEAR = WeakIdKeyDictionary()  # the first rows of angles in float16 and the units' order, by all cosines


def _near(*angles: Tensor) -> tuple[Tensor, Tensor]:
    if angles[0] not in _NEAR:
        first = (one[:BLOCK].half().view(4, 2, 8, 4, 4, 2, 2) for one in angles)
        _NEAR[angles[0]] = tuple(one.permute(0, 4, 2, 3, 5, 1, 6).contiguous() for one in first)
    return _NEAR[angles[0]]  # type: ignore[no-any-return]  # the dictionary is untyped


def knows(queries: Tensor, keys: Tensor, slots: int) -> bool:
    """Say whether this kernel is made for these shapes."""
    return keys.shape[-1] == DIM and queries.shape[1] // keys.shape[1] <= ROWS and slots >= BLOCK


def unit_pieces(
    queries: Tensor, keys: Tensor, values: Tensor, at: Tensor, cos: Tensor, sin: Tensor, length: Tensor,
    slots: int, scale: float,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Pieces of attention [N Hkv, pieces, ROWS, ...], as `attend_rounded` joins them."""
    many, heads, _, dim = queries.shape
    kv_heads, device = keys.shape[1], queries.device
    piece = piece_of(slots, many * kv_heads, PROGRAMS, PIECE)
    pieces = triton.cdiv(slots, piece)
    sums = torch.empty(many * kv_heads, pieces + 1, ROWS, dim, dtype=torch.float32, device=device)
    tops, totals = torch.empty(2, many * kv_heads, pieces + 1, ROWS, dtype=torch.float32, device=device)
    _unit_pieces[(many * kv_heads, pieces + 1)](
        queries.contiguous(), keys.contiguous(), values.contiguous(), *at, cos, sin, *_near(cos, sin), length,
        sums, tops, totals, scale, slots, pieces, H=kv_heads, G=heads // kv_heads, P=piece, num_warps=1,
    )  # fmt: skip
    return sums, tops, totals
