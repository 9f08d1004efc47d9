"""Products of many tokens in whole numbers of 8 bits, which processors multiply faster than float32.

Both sides are turned alike in blocks of columns, which leaves the product as it is and spreads values that
stand out. Then every token's input, and every row of a weight, is rounded by a scale of its own, in buffers
that are used again. Sums have 32 bits; but without VNNI products are first added in pairs of 16 bits, which
hold 7 bits of a weight.
"""

import os
from collections.abc import Callable
from functools import cache
from math import gcd

import torch
from torch import Tensor

from infinipot.hf.packed import ggml
from infinipot.hf.packed.blocks import Blocks, scratched
from infinipot.hf.speed.products import has_onednn

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
    if not has_onednn() or torch.backends.cpu.get_cpu_capability() not in ("AVX2", "AVX512"):
        return 0
    most = torch.full((64, 64), LARGEST, dtype=torch.int8, device="cpu")
    most[::2].neg_()
    sums = {limit: torch._int_mm(most, torch.full_like(most, limit).T).abs() for limit in (LARGEST, NARROW)}
    return max((limit for limit in sums if bool((sums[limit] == 64 * LARGEST * limit).all())), default=0)


def inputs(x: Tensor) -> Rounded:
    """Round every token of x [n, k]."""
    return _rounded(lambda *part: x[slice(*part)], x.new_empty(x.shape, dtype=torch.int8), LARGEST)


def product(x: Rounded, weight: Blocks, role: str = "") -> Tensor:
    """The product [n, out] of rounded inputs and a weight; with a role, in its buffer until the next one."""
    count, width = weight.shape
    shape = len(x[0]), max(2, count)  # without VNNI a weight of one row may overflow in oneDNN
    into = buffer("weight", torch.int8, shape[1], width)
    _, scales = _rounded(lambda *part: scratched(weight.span(*part)), into[:count], weight_limit())
    sums = buffer(role, torch.int32, *shape) if role else torch.empty(shape, dtype=torch.int32, device="cpu")
    sums = torch._int_mm(x[0], into.T, out=sums)[:, :count]  # private: torch has no public one of 8 bits
    return sums.view(torch.float32).copy_(sums).mul_(x[1]).mul_(scales.T)  # floats where the sums were


@cache
def turn(size: int) -> Tensor:
    """Hadamard's matrix [size, size], its own inverse; the size is a power of two."""
    if size == 1:
        return torch.ones(1, 1, dtype=torch.float32, device="cpu")
    half = turn(size // 2) / 2**0.5
    return torch.cat((torch.cat((half, half), 1), torch.cat((half, -half), 1)))


def _rounded(rows: Callable[[int, int], Tensor], out: Tensor, largest: int) -> Rounded:
    """Turn and round rows to whole numbers, of which `largest` stands for a row's largest value."""
    size, scales = gcd(TURNED, out.shape[1]), ggml.floats(len(out), 1)
    for first in range(0, len(out), ROWS):
        last = min(first + ROWS, len(out))
        turned, scale = buffer("turned", torch.float32, last - first, out.shape[1]), scales[first:last]
        torch.mm(rows(first, last).reshape(-1, size), turn(size), out=turned.view(-1, size))
        # amax and amin: aminmax takes several times as long
        torch.maximum(turned.amax(1, keepdim=True), -turned.amin(1, keepdim=True), out=scale)
        scale.clamp_(min=1e-30).div_(largest)
        out[first:last].copy_(turned.mul_(1 / scale).round_())
    return out, scales


def buffer(role: str, dtype: torch.dtype, rows: int, width: int) -> Tensor:
    """Return a buffer of this role, the same one again and again."""
    if role not in _scratch or _scratch[role].numel() < rows * width:
        _scratch[role] = torch.empty(rows * width, dtype=dtype, device="cpu")
    return _scratch[role][: rows * width].view(rows, width)
