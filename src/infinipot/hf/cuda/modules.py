"""A decoder's modules on weights in few bits on a card: linear products, the embedding, the output head.

Few tokens (an answer's) are multiplied by our kernel, whole numbers as they are. Many tokens (a chunk's) are
multiplied by torch after the weight was unpacked into the model's type, one at a time. The products are
operators of their own to torch's compiler, which goes around them, and can be captured in graphs.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from infinipot.core.cuda.dispatch import kernels
from infinipot.hf.cuda import fp8
from infinipot.hf.cuda.fp8 import Fp8
from infinipot.hf.cuda.grouped import Grouped, joined
from infinipot.hf.speed.joint import Joint

FEW = 64  # tokens up to which our kernel multiplies
GROUPS = (16, 32, 64, 128)  # of columns, that the kernel knows


@torch.library.custom_op("infinipot::few", mutates_args=())
def few(x: Tensor, data: Tensor, scale: Tensor, least: Tensor | None, group: int) -> Tensor:
    """x [n, in] times a grouped weight, for few rows."""
    fast = kernels(x.device)
    if fast and x.dtype in (torch.bfloat16, torch.float16) and group in GROUPS:
        return fast.product(x, data, scale, least, group)  # type: ignore[no-any-return]  # loaded by name
    return F.linear(x, Grouped(data, scale, least, group).unpacked().to(x.dtype))


@few.register_fake
def _(x: Tensor, data: Tensor, *_: Any) -> Tensor:
    return x.new_empty(x.shape[0], data.shape[1])


@torch.library.custom_op("infinipot::many", mutates_args=())
def many(
    x: Tensor, data: Tensor, scale: Tensor, least: Tensor | None, group: int, first: int, count: int
) -> Tensor:
    """x [n, in] times `count` rows from `first` on of a grouped weight, which are unpacked for it."""
    return F.linear(x, unpacked(Grouped(data, scale, least, group), first, count, x.dtype))


@many.register_fake
def _(x: Tensor, *told: Any) -> Tensor:
    return x.new_empty(x.shape[0], told[-1])


@torch.library.custom_op("infinipot::eight_bit_floats", mutates_args=())
def eight_bit_floats(x: Tensor, data: Tensor, scale: Tensor) -> Tensor:
    """x [n, in] times a weight in 8-bit floats; to the compiler this is one step."""
    return fp8.product(x, data, scale)


@eight_bit_floats.register_fake
def _(x: Tensor, data: Tensor, *_: Any) -> Tensor:
    return x.new_empty(x.shape[0], data.shape[0])


def unpacked(weight: Grouped, first: int, count: int, dtype: torch.dtype) -> Tensor:
    """Rows [count, in] from `first` on, in a type."""
    fast = kernels(weight.data.device)
    if fast and weight.group in GROUPS:
        out = torch.empty(count, weight.shape[1], dtype=dtype, device=weight.data.device)
        held = weight.data, weight.scale, weight.least, weight.group
        return fast.unpack(*held, first, out)  # type: ignore[no-any-return]  # loaded by name
    return weight.rows(torch.arange(first, first + count, device=weight.data.device)).unpacked().to(dtype)


class Held(nn.Module):
    """Weights of one layout and one input, held once: buffers, so that they move with the model."""

    data: Tensor
    scale: Tensor
    least: Tensor | None

    def __init__(self, weights: Sequence[Grouped], sizes: Sequence[int] = ()) -> None:
        super().__init__()
        whole = weights[0] if len(weights) == 1 else joined(list(weights))
        self.group, self.sizes = whole.group, list(sizes) or [one.shape[0] for one in weights]
        for name in ("data", "scale", "least"):
            self.register_buffer(name, getattr(whole, name))
        self.joint = GroupedJoint(self)

    @property
    def weight(self) -> Grouped:
        """The weights as one."""
        return (Grouped if self.group else Fp8)(self.data, self.scale, self.least, self.group)


class GroupedJoint(Joint):
    """Outputs of several weights of one input, until all were asked for."""

    def __init__(self, held: "Held") -> None:  # not Joint's own: there are no plain modules
        self.held, self.sizes = held, held.sizes
        self.seen, self.parts, self.left = None, (), 0

    def product(self, x: Tensor) -> Tensor:
        """All outputs in one."""
        held, flat = self.held, x.reshape(-1, x.shape[-1])
        if held.group:
            out: Tensor = few(flat, held.data, held.scale, held.least, held.group)
        elif not torch.compiler.is_compiling():  # where an operator of its own costs more than it does
            out = fp8.product(flat, held.data, held.scale)
        elif fp8.FUSED and len(flat) > 1:
            out = fp8.rounded_product(*fp8.rounded_rows(flat), held.data, held.scale, x.dtype)
        else:
            out = eight_bit_floats(flat, held.data, held.scale)
        return out.view(*x.shape[:-1], -1)


class GroupedLinear(nn.Module):
    """Stands for a linear module, alone or among others that share its input."""

    bias: Tensor | None

    def __init__(self, held: Held, index: int, bias: Tensor | None) -> None:
        super().__init__()
        self.held, self.joint, self.index = held, held.joint, index
        self.first, self.out_features = sum(held.sizes[:index]), held.sizes[index]
        self.in_features = held.weight.shape[1]
        self.register_buffer("bias", bias)

    def forward(self, x: Tensor) -> Tensor:
        """As the plain module; for few tokens its siblings' outputs are computed on the way."""
        if x.numel() // x.shape[-1] <= FEW or not self.held.group:
            out = self.joint.output(x, self.index)
        else:
            held, flat = self.held, x.reshape(-1, x.shape[-1])
            parts = (held.data, held.scale, held.least, held.group, self.first, self.out_features)
            out = many(flat, *parts).view(*x.shape[:-1], -1)
        return out if self.bias is None else out + self.bias

    def slowly(self, x: Tensor) -> Tensor:
        """The same by unpacking everything in float32: the oracle."""
        rows = self.held.weight.unpacked()[self.first : self.first + self.out_features]
        out = F.linear(x.float(), rows)
        return out if self.bias is None else out + self.bias


class Fp8Linear(GroupedLinear):
    """Stands for a linear module whose weight and input are multiplied in 8-bit floats."""

    inputs_are_rounded = True

    def forward(self, x: Tensor) -> Tensor:
        """As the plain module."""
        return super().forward(x) if self.inputs_are_rounded else self.slowly(x).to(x.dtype)


@contextmanager
def unrounded_inputs(model: nn.Module) -> Iterator[None]:
    """Multiply weights in 8-bit floats by inputs as they are, slowly.

    Rounded inputs make a tiny difference between two ways of computing large, layer after layer: whether both
    are right can only be seen without.
    """
    found = [module for module in model.modules() if isinstance(module, Fp8Linear)]
    for module in found:
        module.inputs_are_rounded = False
    try:
        yield
    finally:
        for module in found:
            module.inputs_are_rounded = True


class GroupedEmbedding(nn.Module):
    """Stands for an embedding; only the rows that are looked up are unpacked."""

    embed_scale: Tensor | None

    def __init__(self, held: Held, dtype: torch.dtype, scale: Tensor | None = None) -> None:
        super().__init__()
        self.held, self.dtype = held, dtype
        self.register_buffer("embed_scale", scale)

    def forward(self, ids: Tensor) -> Tensor:
        """Rows [..., in] of ids [...]."""
        rows = self.held.weight.rows(ids.reshape(-1)).unpacked().to(self.dtype).view(*ids.shape, -1)
        return rows if self.embed_scale is None else rows * self.embed_scale.to(self.dtype)


class GroupedHead(GroupedLinear):
    """Stands for the output head, whose rows can be had some at a time."""

    def parts(self, most: int) -> Iterator[tuple[int, Tensor]]:
        """Yield rows in the scales' model type, some at a time: where they begin, and their values."""
        rows, width = self.held.weight.shape
        step = max(1, most // width)
        for start in range(0, rows, step):
            yield start, unpacked(self.held.weight, start, min(step, rows - start), self.kind)

    def __init__(self, held: Held, bias: Tensor | None, kind: torch.dtype) -> None:
        super().__init__(held, 0, bias)
        self.kind = kind
