"""A model's products on a CPU by oneDNN, on weights laid out for it once, and in bfloat16 if so wished.

`mixed` rounds what goes into products to bfloat16, sums in float32 and keeps everything else (norms,
attention, residual stream) in float32: twice the speed where the processor has instructions for it. The
likeliest next tokens are computed again in float32. `float32` is exact, and still faster than the usual
layout. The modules lose their plain weights: only for models we have loaded ourselves.
"""

import os
from contextlib import suppress
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from infinipot.errors import ConfigError
from infinipot.hf.speed.joint import FEW, TOGETHER, Joint, plain_linear

ROWS = 2048  # tokens the layout is chosen for: a chunk
LIKELY = 64  # next tokens whose logits are computed in float32
ABSENT = "INFINIPOT_NO_BFLOAT16"  # an environment variable: set, the instructions are reported absent


@cache
def has_onednn() -> bool:
    """Say whether torch can use oneDNN here: it makes machine code as it goes, which a process may not."""
    if not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        return False
    with suppress(RuntimeError):
        one = torch.ones(ROWS, 16, dtype=torch.float32, device="cpu")  # whatever torch's own defaults are
        weight = torch.ops.mkldnn._reorder_linear_weight(one[:16], ROWS)
        return bool((torch.ops.mkldnn._linear_pointwise(one, weight, None, "none", [], "") == 16).all())
    return False


def has_bfloat16() -> bool:
    """Say whether this processor multiplies bfloat16 itself: asked before any such product is made."""
    if os.environ.get(ABSENT) or not has_onednn():
        return False
    # private: torch has no public word for it in all the versions we take; limited to AVX2, oneDNN has none
    there = torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
    return bool(there and torch.ops.mkldnn._is_mkldnn_bf16_supported())


class Packed:
    """One weight [out, in] in oneDNN's own layout."""

    def __init__(self, weight: Tensor, bias: Tensor | None, dtype: torch.dtype, narrow: bool = False) -> None:
        if dtype == torch.bfloat16 and not has_bfloat16():
            raise ConfigError("this processor has no bfloat16 instructions", remedy="use `dtype` float32")
        self.dtype, self.narrow = dtype, narrow
        # private: oneDNN's layout has no public function in torch; torch.compile uses these two as well
        self.weight = torch.ops.mkldnn._reorder_linear_weight(weight.to(dtype), ROWS)
        self.bias = None if bias is None else bias.to(dtype)

    def __call__(self, x: Tensor) -> Tensor:
        """The product for x [..., in], in x's own type, or as it is if what follows is a product again."""
        given = x.to(self.dtype)
        # private: as above
        out: Tensor = torch.ops.mkldnn._linear_pointwise(given, self.weight, self.bias, "none", [], "")
        return out if self.narrow else out.to(x.dtype)


class PackedJoint(Joint):
    """Several linear modules that share their input, or one, as a packed product."""

    def __init__(self, modules: list[nn.Linear], dtype: torch.dtype, narrow: bool = False) -> None:
        super().__init__(modules)
        self.packed = Packed(self.weight, self.bias, dtype, narrow)
        self.weight, self.bias = torch.empty(0), None  # laid out anew: not held twice

    def product(self, x: Tensor) -> Tensor:
        """Return the outputs of all modules side by side."""
        return self.packed(x)


class Product(nn.Module):
    """One of the linear modules whose weights a `PackedJoint` holds."""

    def __init__(self, joint: Joint, index: int) -> None:
        super().__init__()
        self.joint, self.index = joint, index

    def forward(self, x: Tensor) -> Tensor:
        """As the plain module, computed for its siblings on the way."""
        return self.joint.output(x, self.index)


class Head(nn.Module):
    """The output head in `dtype`; for few tokens, whose next ones will be chosen, the likeliest exactly."""

    def __init__(self, of: nn.Linear, dtype: torch.dtype = torch.bfloat16) -> None:
        super().__init__()
        self.weight, self.bias = of.weight, of.bias
        self.packed = Packed(of.weight.data, None if of.bias is None else of.bias.data, dtype)

    def forward(self, x: Tensor) -> Tensor:
        """Logits [..., V] in x's own type."""
        logits = self.packed(x)
        if x.shape[:-1].numel() > FEW:
            return logits
        places = logits.topk(min(LIKELY, logits.shape[-1]), dim=-1).indices  # [..., LIKELY]
        rows = self.weight[places.reshape(-1)].view(*places.shape, -1)
        exact = (rows @ x[..., None])[..., 0]
        if self.bias is not None:
            exact = exact + self.bias[places]
        return logits.scatter(-1, places, exact)


@torch.no_grad()
def pack(model: nn.Module, decoder: nn.Module, dtype: torch.dtype) -> int:
    """Lay out the weights of every plain linear module in `dtype`; return how many products."""
    count = 0
    for module in decoder.modules():
        for names in (*TOGETHER, *((name,) for name, _ in list(module.named_children()))):
            found: list[Any] = [getattr(module, name, None) for name in names]
            if plain_linear(found):
                between = names == TOGETHER[1]  # gate and up: only an activation lies before the next product
                joint = PackedJoint(found, dtype, between)
                for index, name in enumerate(names):
                    setattr(module, name, Product(joint, index))
                count += 1
    head = model.get_output_embeddings()  # type: ignore[operator]  # torch types a module's attributes so
    if plain_linear([head]):
        rounded = dtype == torch.bfloat16
        made = Head(head) if rounded else Product(PackedJoint([head], dtype), 0)
        model.set_output_embeddings(made)  # type: ignore[operator]
        count += 1
    for weight in model.parameters():  # a copy of what is left, or the whole file would stay mapped for it
        weight.data = weight.data.clone()
    return count
