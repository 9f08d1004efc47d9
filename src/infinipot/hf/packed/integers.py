"""Products of many tokens in whole numbers of 8 bits, which processors multiply faster than float32.

Both sides are turned alike in blocks of columns, which leaves the product as it is and spreads values that
stand out: they would spoil the rounding of all others. Then every token's input is rounded by a scale of its
own, and so is every row of a weight, in buffers that are used again. Sums are whole numbers of 32 bits.
A processor without VNNI first adds products in pairs of 16 bits, which hold those of a weight of 7 bits.
`slowly` is the obvious twin.
"""

import os
from functools import cache
from math import gcd

import torch
from torch import Tensor

from infinipot.hf.packed import ggml
from infinipot.hf.packed.blocks import Blocks, scratched, slowly_unpacked

LARGEST, NARROW = 127, 63  # of 8 bits, and of 7
TURNED = 64  # columns that are turned together, where the width is a multiple
ROWS = 256  # turned and rounded at a time: they stay in the cache
ABSENT = "INFINIPOT_NO_INT8"  # an environment variable: set, the instructions are reported absent
Rounded = tuple[Tensor, Tensor]  # whole numbers [n, k] and scales [n, 1]
_scratch: dict[str, Tensor] = {}


def has_int8() -> bool:
    """Say whether this processor multiplies 8 bits fast and without an error."""
    return not os.environ.get(ABSENT) and weight_limit() > 0


@cache
def weight_limit() -> int:
    """Return the largest whole number that a weight may be rounded to, so that no sum overflows; 0: none."""
    if not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        return 0
    if torch.backends.cpu.get_cpu_capability() not in ("AVX2", "AVX512"):
        return 0
    return next((limit for limit in (LARGEST, NARROW) if _is_exact(limit)), 0)  # oneDNN may be limited


def _is_exact(limit: int) -> bool:
    most = torch.full((64, 64), LARGEST, dtype=torch.int8, device="cpu")
    sums = [torch._int_mm(x, torch.full_like(x, limit).T) for x in (most, -most)]
    return all(
        bool((one == sign * 64 * LARGEST * limit).all()) for one, sign in zip(sums, (1, -1), strict=True)
    )


def inputs(x: Tensor) -> Rounded:
    """Round every token of x [n, k]."""
    out, scales = torch.empty(x.shape, dtype=torch.int8, device="cpu"), ggml.floats(len(x), 1)
    for first in range(0, len(x), ROWS):
        part = slice(first, first + ROWS)
        _round(x[part], out[part], scales[part], LARGEST)
    return out, scales


def product(x: Rounded, weight: Blocks, role: str = "") -> Tensor:
    """The product [n, out] of rounded inputs with a weight, which is rounded here.

    With a role it is in the buffer of that role, and valid until the next such product.
    """
    whole, scales = _weight(weight)
    shape = len(x[0]), len(whole)
    sums = buffer(role, torch.int32, *shape) if role else torch.empty(shape, dtype=torch.int32, device="cpu")
    torch._int_mm(x[0], whole.T, out=sums)  # private: torch has no public product of 8 bits
    return sums.view(torch.float32).copy_(sums).mul_(x[1]).mul_(scales.T)  # floats where the sums were


def slowly(x: Tensor, weight: Blocks) -> Tensor:
    """The same product of x [n, k], by unpacking everything and adding up in float64."""
    sides = []
    for values, largest in ((x, LARGEST), (slowly_unpacked(weight), weight_limit())):
        size = gcd(TURNED, weight.width)
        turned = (values.double().view(len(values), -1, size) @ turn(size).double()).flatten(1)
        scales = turned.abs().amax(1, keepdim=True) / largest
        sides.append((turned / scales).round() * scales)
    return (sides[0] @ sides[1].T).float()


@cache
def turn(size: int) -> Tensor:
    """Hadamard's matrix [size, size], its own inverse; the size is a power of two."""
    if size == 1:
        return torch.ones(1, 1, dtype=torch.float32, device="cpu")
    half = turn(size // 2) / 2**0.5
    return torch.cat((torch.cat((half, half), 1), torch.cat((half, -half), 1)))


def _weight(weight: Blocks) -> Rounded:
    out, scales = buffer("weight", torch.int8, *weight.shape), ggml.floats(len(weight.data), 1)
    for first in range(0, len(out), ROWS):
        part = slice(first, first + ROWS)
        _round(scratched(weight.span(first, first + ROWS)), out[part], scales[part], weight_limit())
    return out, scales


def _round(values: Tensor, out: Tensor, scales: Tensor, largest: int) -> None:
    """Turn and round rows [n, k] to whole numbers, of which `largest` stands for a row's largest value."""
    size, turned = gcd(TURNED, values.shape[1]), buffer("turned", torch.float32, *values.shape)
    torch.mm(values.reshape(-1, size), turn(size), out=turned.view(-1, size))
    # amax and amin: aminmax takes several times as long
    torch.maximum(turned.amax(1, keepdim=True), -turned.amin(1, keepdim=True), out=scales)
    scales.clamp_(min=1e-30).div_(largest)
    out.copy_(turned.mul_(1 / scales).round_())


def buffer(role: str, dtype: torch.dtype, rows: int, width: int) -> Tensor:
    """Return a buffer of this role, the same one again and again."""
    if role not in _scratch or _scratch[role].numel() < rows * width:
        _scratch[role] = torch.empty(rows * width, dtype=dtype, device="cpu")
    return _scratch[role][: rows * width].view(rows, width)
