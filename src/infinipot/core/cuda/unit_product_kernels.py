"""A product of one token with a weight in 4 or 8 bits, laid out for the matrix units in Gluon.

Weights go from memory into registers as the units take them: 16 bytes a lane, no way through shared memory.
A nibble below the exponent of 128 is the number 128 + nibble, so two weights cost one instruction, and 128
times the sum of x is taken away again. Eight groups are multiplied at once: their x lie in columns of their
own, zero elsewhere, so that each column's sum can have its own scale. Warps share out the groups of a
program's rows: there are no parts to be summed by another kernel.
"""

from typing import Any

import torch
import triton
from torch import Tensor
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import mma_v2

Form = tuple[int, int, int, int | None]  # warps of a program, tiles of 16 columns, chunks at a time, registers
MANY_COLUMNS, MANY_GROUPS, ONE_WAVE = 16384, 128, 4096
FORM: Form | None = None  # this one for every weight, for comparison
WIDEST = 128  # pairs of bytes of a row that a warp multiplies at once


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


@gluon.jit
def _one_token(
    x, data, scale, least, out, columns, groups,
    G: gl.constexpr, FOUR: gl.constexpr, LEAST: gl.constexpr, C: gl.constexpr, W: gl.constexpr,
    T: gl.constexpr, U: gl.constexpr,
):  # fmt: skip
    """T tiles of 16 columns; a warp takes every Wth chunk of C groups."""
    N: gl.constexpr = G // 4 if FOUR else G // 2  # pairs of bytes of a group
    K: gl.constexpr = C * N
    KIND: gl.constexpr = x.dtype.element_ty
    WIDE: gl.constexpr = KIND == gl.bfloat16  # noqa: SIM300
    LOW: gl.constexpr = "0x43004300" if WIDE else "0x64006400"
    SIGNED: gl.constexpr = "0x43084308" if WIDE else "0x64086408"
    HIGH: gl.constexpr = LOW if FOUR else SIGNED
    EXTRA: gl.constexpr = (128.0 if WIDE else 1024.0) * (1 if FOUR else 17) + (0 if FOUR else 128)
    MMA: gl.constexpr = gl.NVMMADistributedLayout([2, 0], [W, 1, 1], [1, 16, 8])
    A: gl.constexpr = gl.DotOperandLayout(0, MMA, 2)
    B: gl.constexpr = gl.DotOperandLayout(1, MMA, 2)
    HELD: gl.constexpr = _layout(W, 16, K, 8)
    GIVEN: gl.constexpr = _layout(W, 8, 2 * K, 16)
    first = gl.program_id(0) * (16 * T)
    warp = gl.arange(0, W, gl.SliceLayout(1, gl.SliceLayout(2, HELD)))[:, None, None]
    row = gl.arange(0, 16, gl.SliceLayout(0, gl.SliceLayout(2, HELD)))[None, :, None]
    pair = gl.arange(0, K, gl.SliceLayout(0, gl.SliceLayout(1, HELD)))[None, None, :]
    its_warp = gl.arange(0, W, gl.SliceLayout(1, gl.SliceLayout(2, GIVEN)))[:, None, None]
    its_group = gl.arange(0, 8, gl.SliceLayout(0, gl.SliceLayout(2, GIVEN)))[None, :, None]
    value = gl.arange(0, 2 * K, gl.SliceLayout(0, gl.SliceLayout(1, GIVEN)))[None, None, :]
    of_warp = gl.arange(0, W, gl.SliceLayout(1, gl.SliceLayout(2, MMA)))[:, None, None]
    of_row = gl.arange(0, 16, gl.SliceLayout(0, gl.SliceLayout(2, MMA)))[None, :, None]
    of_group = gl.arange(0, 8, gl.SliceLayout(0, gl.SliceLayout(1, MMA)))[None, None, :]
    zero = gl.zeros([W, 16, 8], gl.float32, MMA)
    total = (zero,) * T
    ones = gl.full([W, 16, K], 1.0, KIND, A)
    from_x = x + its_warp * (C * G) + value // (2 * N) * G + value % (2 * N)
    place = (warp * C + pair // N) * columns + first + row
    from_data = data + place.to(gl.int64) * N + pair % N
    at = (of_warp * C + of_group) * columns + first + of_row
    for start in range(0, groups, C * W * U):
        for step in gl.static_range(U):
            begin = start + step * C * W
            own = (value // (2 * N) == its_group) & (begin + its_warp * C + its_group < groups)
            even, odd = gl.split(gl.load(from_x + begin * G, mask=own, other=0.0).reshape([W, 8, K, 2]))
            if FOUR:
                second = gl.load(from_x + begin * G + G // 2, mask=own, other=0.0).reshape([W, 8, K, 2])
                even_high, odd_high = gl.split(second)
            else:
                even_high, odd_high = (even * 16.0).to(KIND), (odd * 16.0).to(KIND)
            x0, x1, x2, x3 = _inputs(even, B), _inputs(even_high, B), _inputs(odd, B), _inputs(odd_high, B)
            amount = mma_v2(ones, x2, mma_v2(ones, x0, zero))
            if FOUR:
                amount = mma_v2(ones, x3, mma_v2(ones, x1, amount))
            more = ()
            for tile in gl.static_range(T):
                skip = begin * columns + 16 * tile
                known = (begin + warp * C + pair // N < groups) & (first + 16 * tile + row < columns)
                held = gl.load(from_data + skip.to(gl.int64) * N, mask=known, other=0)
                part = mma_v2(_weights(held, 0, LOW, KIND, A), x0, zero)
                part = mma_v2(_weights(held, 4, HIGH, KIND, A), x1, part)
                part = mma_v2(_weights(held, 8, LOW, KIND, A), x2, part)
                part = mma_v2(_weights(held, 12, HIGH, KIND, A), x3, part)
                here = (of_group < C) & (begin + of_warp * C + of_group < groups)
                here = here & (first + 16 * tile + of_row < columns)
                size = gl.load(scale + skip + at, mask=here, other=0.0).to(gl.float32)
                low_end = -EXTRA * size
                if LEAST:
                    low_end += gl.load(least + skip + at, mask=here, other=0.0).to(gl.float32)
                more = more + (total[tile] + part * size + low_end * amount,)  # type: ignore[assignment]  # noqa: RUF005
            total = more
    for tile in gl.static_range(T):
        found = gl.sum(gl.sum(total[tile], 2), 0)
        to = first + 16 * tile + gl.arange(0, 16, found.type.layout)
        gl.store(out + to, found.to(out.dtype.element_ty), mask=to < columns)


def form_of(columns: int, groups: int, four: bool) -> Form:
    """Return what was fastest on an H200: few columns want all of their bytes on the way at once."""
    if columns >= MANY_COLUMNS:
        return (4, 4, 1, None) if four else (2, 2, 2, None)
    if groups > MANY_GROUPS:
        return 8, 1, 1, 128
    return (4, 1, 2, None) if columns <= ONE_WAVE else (4, 1, 1, 128)


def knows(x: Tensor, data: Tensor) -> bool:
    """Say whether this kernel multiplies these exactly: 16 times an x in float16 might be too large."""
    return data.dtype == torch.uint8 or x.dtype == torch.bfloat16


def one_token(x: Tensor, data: Tensor, scale: Tensor, least: Tensor | None, group: int) -> Tensor:
    """x [1, K] times a grouped weight [N, K]. Oracle: `Grouped.unpacked` and a product."""
    columns, four = data.shape[1], data.dtype == torch.uint8
    pairs = group // 4 if four else group // 2
    warps, tiles, at_once, most = FORM or form_of(columns, x.shape[1] // group, four)
    out = torch.empty(1, columns, dtype=x.dtype, device=x.device)
    limit: dict[str, Any] = {} if most is None else {"maxnreg": most}
    _one_token[(triton.cdiv(columns, 16 * tiles),)](
        x.contiguous(), data.view(torch.int16), scale, scale if least is None else least, out, columns,
        x.shape[1] // group, G=group, FOUR=four, LEAST=least is not None,
        C=max(1, min(8, WIDEST // pairs)), W=warps, T=tiles, U=at_once, num_warps=warps, **limit,
    )  # fmt: skip
    return out
