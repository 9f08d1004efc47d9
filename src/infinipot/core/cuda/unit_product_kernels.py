"""A product of one token with a weight in 4 or 8 bits, laid out for the matrix units in Gluon.

Weights go from memory into registers as the units take them: 16 bytes a lane, no way through shared memory.
A nibble below the exponent of 128 is the number 128 + nibble, so two weights cost one instruction, and 128
times the sum of x is taken away again. Eight groups are multiplied at once: their x lie in columns of their
own, zero elsewhere, so that each column's sum can have its own scale. Warps share out the groups of a
program's rows: there are no parts to be summed by another kernel. Tuples grow by `+`, since Gluon takes no
star; linters and types, which see Python, are told to let that be.
"""

from typing import Any

import torch
import triton
from torch import Tensor
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import mma_v2

from infinipot.core.cuda.units import begins_early

Form = tuple[int, int, bool, int | None, int]
"""Warps of a program, tiles of 16 columns, whether the next chunk is read ahead, registers at most, and pairs
of bytes of a row that a warp multiplies at once."""
MANY_COLUMNS = 16384
WIDE: Form = (2, 4, False, None, 128)  # for many columns: tiles share what is prepared of x
WIDE_EIGHT: Form = (4, 2, True, 168, 64)  # the same in 8 bits
NARROW: Form = (8, 1, False, 128, 128)  # for few columns
FORM: Form | None = None  # this one for every weight, for comparison


@gluon.constexpr_function
def _bits(n: int) -> int:
    return n.bit_length() - 1


@gluon.constexpr_function
def _layout(warps: int, rows: int, width: int, own: int) -> gl.DistributedLinearLayout:
    """[warps, rows, width]: `own` of a row a lane, four lanes a row, eight rows at a time."""
    registers = [[0, 0, 1 << i] for i in range(_bits(own))] + ([[0, 8, 0]] if rows == 16 else [])
    registers += [[0, 0, 4 * own << i] for i in range(_bits(width // (4 * own)))]
    lanes = [[0, 0, own], [0, 0, 2 * own], [0, 1, 0], [0, 2, 0], [0, 4, 0]]
    return gl.DistributedLinearLayout(
        registers, lanes, [[1 << i, 0, 0] for i in range(_bits(warps))], [], [warps, rows, width]
    )


@gluon.constexpr_function
def _nibble(shift: int, magic: str) -> str:
    move = f"shr.b32 a, $1, {shift};" if shift else "mov.b32 a, $1;"
    return "{ .reg .b32 a, z; mov.b32 z, " + magic + "; " + move + " lop3.b32 $0, a, 0x000F000F, z, 0x6A; }"


@gluon.jit
def _weights(held, S: gl.constexpr, MAGIC: gl.constexpr, KIND: gl.constexpr, of: gl.constexpr):
    """Nibbles [W, 16, K] of pairs of bytes, as the product's first operand; columns in the units' order."""
    W: gl.constexpr = held.shape[0]
    K: gl.constexpr = held.shape[2]
    x = gl.inline_asm_elementwise(_nibble(S, MAGIC), "=r,r", [held], dtype=gl.int16, is_pure=True, pack=2)
    x = x.to(KIND, bitcast=True).reshape([W, 16, K // 32, 4, 2, 2, 2])
    return gl.convert_layout(x.permute(0, 1, 2, 4, 5, 3, 6).reshape([W, 16, K]), of, assert_trivial=True)


@gluon.jit
def _inputs(x, of: gl.constexpr):
    """[W, 8, K] as the second operand [W, K, 8]."""
    W: gl.constexpr = x.shape[0]
    K: gl.constexpr = x.shape[2]
    x = x.reshape([W, 8, K // 32, 4, 2, 2, 2]).permute(0, 2, 4, 5, 3, 6, 1).reshape([W, K, 8])
    return gl.convert_layout(x, of, assert_trivial=True)


@gluon.constexpr_function
def _spread(warps: int, blocks: int, width: int) -> gl.DistributedLinearLayout:
    """[warps, 8, blocks, width]: 8 of a row a lane at a time, four lanes a row, all blocks in each lane."""
    registers = [[0, 0, 0, 1 << i] for i in range(3)] + [
        [0, 0, 0, 32 << i] for i in range(_bits(width // 32))
    ]
    registers += [[0, 0, 1 << i, 0] for i in range(_bits(blocks))]
    lanes = [[0, 0, 0, 8], [0, 0, 0, 16], [0, 1, 0, 0], [0, 2, 0, 0], [0, 4, 0, 0]]
    return gl.DistributedLinearLayout(
        registers, lanes, [[1 << i, 0, 0, 0] for i in range(_bits(warps))], [], [warps, 8, blocks, width]
    )


@gluon.jit
def _given(from_x, own, begin, G: gl.constexpr, FOUR: gl.constexpr):
    """x of each group's low and high nibbles, [W, 8, B]."""
    low = gl.load(from_x + begin * G, mask=own, other=0.0)
    high = (low * 16.0).to(low.dtype)
    if FOUR:
        high = gl.load(from_x + begin * G + G // 2, mask=own, other=0.0)
    return low, high


@gluon.jit
def _held(
    data, scale, least, rows, many, rows_of, many_of, of_group, columns, limit, begin,
    N: gl.constexpr, LEAST: gl.constexpr, C: gl.constexpr, T: gl.constexpr, S: gl.constexpr,
):  # fmt: skip
    """Weights, scales and least values of each tile: S side by side, others `limit` columns further."""
    held, sizes, ends = (), (), ()
    for tile in gl.static_range(T):
        skip = begin * columns + 16 * (tile % S) + tile // S * limit
        known = (many > begin) & (rows > 16 * (tile % S))
        here = (of_group < C) & (many_of > begin) & (rows_of > 16 * (tile % S))
        held = held + (gl.load(data + skip.to(gl.int64) * N, mask=known, other=0),)  # type: ignore[assignment]  # noqa: RUF005
        size = gl.load(scale + skip, mask=here, other=0.0)
        sizes = sizes + (size,)  # type: ignore[assignment]  # noqa: RUF005
        if LEAST:
            size = gl.load(least + skip, mask=here, other=0.0)
        ends = ends + (size,)  # type: ignore[assignment]  # noqa: RUF005
    return held, sizes, ends


@gluon.jit
def _apart(x, mine, K: gl.constexpr, of: gl.constexpr):
    """[W, 8, B] as the second operand, each group in a column of its own and zero in the others."""
    W: gl.constexpr = x.shape[0]
    KIND: gl.constexpr = x.dtype
    x = gl.convert_layout(x, gl.SliceLayout(2, mine.type.layout), assert_trivial=True)
    x = x.to(gl.int16, bitcast=True)[:, :, None, :]
    x = gl.inline_asm_elementwise(
        "and.b32 $0, $1, $2;", "=r,r,r", [x, mine], dtype=gl.int16, is_pure=True, pack=2
    )
    return _inputs(x.to(KIND, bitcast=True).reshape([W, 8, K]), of)


@gluon.jit
def _begin_early():
    """Let the next kernel begin; wait for the one before, whose results are not there yet."""
    gl.inline_asm_elementwise(
        "griddepcontrol.launch_dependents; // $0", "=r", [], dtype=gl.int32, is_pure=False, pack=1
    )
    gl.inline_asm_elementwise("griddepcontrol.wait; // $0", "=r", [], dtype=gl.int32, is_pure=False, pack=1)


@gluon.jit
def _stored(found, bias, out, to, limit, BIAS: gl.constexpr):
    """Sums of a tile in the output's type, with what is added to them."""
    found = found.to(out.dtype.element_ty)
    if BIAS:
        found = (found + gl.load(bias + to, mask=to < limit, other=0.0)).to(out.dtype.element_ty)
    return found


@gluon.jit
def _one_token(
    x, data, scale, least, bias, out, columns, groups,
    G: gl.constexpr, FOUR: gl.constexpr, LEAST: gl.constexpr, C: gl.constexpr, W: gl.constexpr,
    T: gl.constexpr, AHEAD: gl.constexpr, BIAS: gl.constexpr, GATED: gl.constexpr, EARLY: gl.constexpr,
):  # fmt: skip
    """T tiles of 16 columns; a warp takes every Wth chunk of C groups, and may read the next ahead.

    Where the weight is GATED, half of the tiles are of its first half, and pass through SiLU as gates of the
    others.
    """
    N: gl.constexpr = G // 4 if FOUR else G // 2  # pairs of bytes of a group
    K: gl.constexpr = C * N
    B: gl.constexpr = max(64, 2 * N)  # values of x in a row of lanes, in which Q groups lie
    Q: gl.constexpr = B // (2 * N)
    KIND: gl.constexpr = x.dtype.element_ty
    BF16: gl.constexpr = KIND == gl.bfloat16  # noqa: SIM300
    LOW: gl.constexpr = "0x43004300" if BF16 else "0x64006400"
    SIGNED: gl.constexpr = "0x43084308" if BF16 else "0x64086408"
    HIGH: gl.constexpr = LOW if FOUR else SIGNED
    EXTRA: gl.constexpr = (128.0 if BF16 else 1024.0) * (1 if FOUR else 17) + (0 if FOUR else 128)
    MMA: gl.constexpr = gl.NVMMADistributedLayout([2, 0], [W, 1, 1], [1, 16, 8])
    FIRST: gl.constexpr = gl.DotOperandLayout(0, MMA, 2)
    SECOND: gl.constexpr = gl.DotOperandLayout(1, MMA, 2)
    HELD: gl.constexpr = _layout(W, 16, K, 8)
    SPREAD: gl.constexpr = _spread(W, 2 * K // B, B // 2)
    GIVEN: gl.constexpr = _layout(W, 8, B, 16)
    S: gl.constexpr = T // 2 if GATED else T
    limit = columns // 2 if GATED else columns
    first = gl.program_id(0) * (16 * S)
    if EARLY:
        _begin_early()
    warp = gl.arange(0, W, gl.SliceLayout(1, gl.SliceLayout(2, HELD)))[:, None, None]
    row = gl.arange(0, 16, gl.SliceLayout(0, gl.SliceLayout(2, HELD)))[None, :, None]
    pair = gl.arange(0, K, gl.SliceLayout(0, gl.SliceLayout(1, HELD)))[None, None, :]
    its_warp = gl.arange(0, W, gl.SliceLayout(1, gl.SliceLayout(2, GIVEN)))[:, None, None]
    its_group = gl.arange(0, 8, gl.SliceLayout(0, gl.SliceLayout(2, GIVEN)))[None, :, None]
    value = gl.arange(0, B, gl.SliceLayout(0, gl.SliceLayout(1, GIVEN)))[None, None, :]
    the_group = gl.arange(0, 8, gl.SliceLayout(0, gl.SliceLayout(2, gl.SliceLayout(3, SPREAD))))
    block = gl.arange(0, 2 * K // B, gl.SliceLayout(0, gl.SliceLayout(1, gl.SliceLayout(3, SPREAD))))
    mine = gl.where(the_group[None, :, None] // Q == block[None, None, :], -1, 0).to(gl.int16)[:, :, :, None]
    mine = mine + gl.zeros([W, 8, 2 * K // B, B // 2], gl.int16, SPREAD)
    of_warp = gl.arange(0, W, gl.SliceLayout(1, gl.SliceLayout(2, MMA)))[:, None, None]
    of_row = gl.arange(0, 16, gl.SliceLayout(0, gl.SliceLayout(2, MMA)))[None, :, None]
    of_group = gl.arange(0, 8, gl.SliceLayout(0, gl.SliceLayout(1, MMA)))[None, None, :]
    zero = gl.zeros([W, 16, 8], gl.float32, MMA)
    total = (zero,) * T
    ones = gl.full([W, 16, B // 2], 1.0, KIND, FIRST)
    own = (value // (2 * N) == its_group % Q) & (its_group < C) & (its_warp >= 0)
    left = groups - its_warp * C - its_group
    from_x = x + (its_warp * C + its_group) * G + value % (2 * N)
    place = (warp * C + pair // N) * columns + first + row
    from_data = data + place.to(gl.int64) * N + pair % N
    at = (of_warp * C + of_group) * columns + first + of_row
    many, many_of = groups - warp * C - pair // N, groups - of_warp * C - of_group
    next_x = _given(from_x, own & (left > 0), 0, G, FOUR)
    next_w = _held(
        from_data, scale + at, least + at, limit - first - row, many, limit - first - of_row, many_of,
        of_group, columns, limit, 0, N, LEAST, C, T, S,
    )  # fmt: skip
    for start in range(0, groups, C * W):
        after = start + C * W
        if AHEAD:
            low, high = next_x
            held, sizes, ends = next_w
            next_x = _given(from_x, own & (left > after), after, G, FOUR)
            next_w = _held(
                from_data, scale + at, least + at, limit - first - row, many, limit - first - of_row,
                many_of, of_group, columns, limit, after, N, LEAST, C, T, S,
            )  # fmt: skip
        else:
            low, high = _given(from_x, own & (left > start), start, G, FOUR)
            held, sizes, ends = _held(
                from_data, scale + at, least + at, limit - first - row, many, limit - first - of_row,
                many_of, of_group, columns, limit, start, N, LEAST, C, T, S,
            )  # fmt: skip
        even, odd = gl.split(low.reshape([W, 8, B // 2, 2]))
        x0, x2 = _apart(even, mine, K, SECOND), _apart(odd, mine, K, SECOND)
        amount = mma_v2(ones, _inputs(odd, SECOND), mma_v2(ones, _inputs(even, SECOND), zero))
        even, odd = gl.split(high.reshape([W, 8, B // 2, 2]))
        x1, x3 = _apart(even, mine, K, SECOND), _apart(odd, mine, K, SECOND)
        if FOUR:
            amount = mma_v2(ones, _inputs(odd, SECOND), mma_v2(ones, _inputs(even, SECOND), amount))
        more = ()
        for tile in gl.static_range(T):
            part = mma_v2(_weights(held[tile], 0, LOW, KIND, FIRST), x0, zero)
            other = mma_v2(_weights(held[tile], 4, HIGH, KIND, FIRST), x1, zero)
            part = mma_v2(_weights(held[tile], 8, LOW, KIND, FIRST), x2, part)
            other = mma_v2(_weights(held[tile], 12, HIGH, KIND, FIRST), x3, other)
            size = sizes[tile].to(gl.float32)
            low_end = -EXTRA * size
            if LEAST:
                low_end += ends[tile].to(gl.float32)
            more = more + (total[tile] + (part + other) * size + low_end * amount,)  # type: ignore[assignment]  # noqa: RUF005
        total = more
    for tile in gl.static_range(S):
        found = gl.sum(gl.sum(total[tile], 2), 0)
        to = first + 16 * tile + gl.arange(0, 16, found.type.layout)
        found = _stored(found, bias, out, to, limit, BIAS)
        if GATED:
            other = gl.sum(gl.sum(total[tile + S], 2), 0)
            other = _stored(other, bias + limit, out, to, limit, BIAS).to(gl.float32)
            gate = found.to(gl.float32)
            gate = (gate / (1.0 + gl.exp(-gate))).to(out.dtype.element_ty).to(gl.float32)
            found = (gate * other).to(out.dtype.element_ty)
        gl.store(out + to, found, mask=to < limit)


def form_of(columns: int, four: bool) -> Form:
    """Return what was fastest on an H200 for a weight of such a shape."""
    if columns < MANY_COLUMNS:
        return NARROW
    return WIDE if four else WIDE_EIGHT


def knows(x: Tensor, data: Tensor) -> bool:
    """Say whether this kernel multiplies these exactly: 16 times an x in float16 might be too large."""
    return data.dtype == torch.uint8 or x.dtype == torch.bfloat16


def one_token(
    x: Tensor, data: Tensor, scale: Tensor, least: Tensor | None, group: int,
    bias: Tensor | None = None, gated: bool = False,
) -> Tensor:  # fmt: skip
    """x [1, K] times a grouped weight [N, K], plus bias. Oracle: `Grouped.unpacked` and a product.

    Where the weight is `gated`, SiLU of the output's first half times its second half [1, N / 2].
    """
    columns, four, groups = data.shape[1], data.dtype == torch.uint8, x.shape[1] // group
    pairs = group // 4 if four else group // 2
    warps, tiles, ahead, most, widest = FORM or form_of(columns, four)
    tiles = max(2, tiles) if gated else tiles
    limit, early = columns // (1 + gated), begins_early(x.device)
    out = torch.empty(1, limit, dtype=x.dtype, device=x.device)
    told: dict[str, Any] = {} if most is None else {"maxnreg": most}
    told |= {"launch_pdl": True} if early else {}
    _one_token[(triton.cdiv(limit, 16 * tiles // (1 + gated)),)](
        x.contiguous(), data.view(torch.int16), scale, scale if least is None else least,
        scale if bias is None else bias, out, columns, groups, G=group, FOUR=four, LEAST=least is not None,
        C=max(1, min(8, widest // pairs)), W=warps, T=tiles, AHEAD=ahead, BIAS=bias is not None, GATED=gated,
        EARLY=early, num_warps=warps, **told,
    )  # fmt: skip
    return out
