"""A model's products on a CPU by oneDNN, on weights laid out for it once, and in bfloat16 if so wished.

`mixed` rounds what goes into products to bfloat16, sums in float32 and keeps everything else (norms,
attention, residual stream) in float32: twice the speed where the processor has instructions for it.
The likeliest next tokens are computed again in float32. `float32` is exact, and still faster than
the usual layout.
The modules lose their plain weights: only for models we have loaded ourselves.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from infinipot.hf.joint import FEW, TOGETHER, plain_linear

ROWS = 2048  # tokens the layout is chosen for: a chunk
LIKELY = 64  # next tokens whose logits are computed in float32


def has_onednn() -> bool:
    """Say whether torch can use oneDNN here."""
    return bool(torch.backends.mkldnn.is_available())  # type: ignore[no-untyped-call]


def has_bfloat16() -> bool:
    """Say whether this processor multiplies bfloat16 itself."""
    return has_onednn() and bool(torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported())


class Packed:
    """One weight [out, in] in oneDNN's own layout."""

    def __init__(self, weight: Tensor, bias: Tensor | None, dtype: torch.dtype, narrow: bool = False) -> None:
        self.dtype, self.narrow = dtype, narrow
        self.weight = torch.ops.mkldnn._reorder_linear_weight(weight.to(dtype), ROWS)
        self.bias = None if bias is None else bias.to(dtype)

    def __call__(self, x: Tensor) -> Tensor:
        """The product for x [..., in], in x's own type, or as it is if what follows is a product again."""
        given = x.to(self.dtype)
        out: Tensor = torch.ops.mkldnn._linear_pointwise(given, self.weight, self.bias, "none", [], "")
        return out if self.narrow else out.to(x.dtype)


class Product(nn.Module):
    """Stands for one linear module, or for several that share their input: the first computes for all."""

    def __init__(self, packed: Packed, sizes: list[int]) -> None:
        super().__init__()
        self.packed, self.sizes = packed, sizes
        self.rest: tuple[Tensor, ...] = ()  # what the siblings will ask for
        self.seen: Tensor | None = None  # the input it belongs to

    def forward(self, x: Tensor) -> Tensor:
        """The first module's output."""
        first, *rest = torch.split(self.packed(x), self.sizes, dim=-1)
        if rest:
            self.seen, self.rest = x, tuple(rest)
        return first


class Sibling(nn.Module):
    """Takes what the first module has computed; computes it itself for any other input."""

    def __init__(self, first: Product, index: int) -> None:
        super().__init__()
        self._first, self.index = [first], index  # in a list: the module itself lives elsewhere

    def forward(self, x: Tensor) -> Tensor:
        """This module's output."""
        first = self._first[0]
        if first.seen is not x:
            return torch.split(first.packed(x), first.sizes, dim=-1)[self.index]
        found = first.rest[self.index - 1]
        if self.index == len(first.sizes) - 1:  # the last to ask: hold nothing between layers
            first.seen, first.rest = None, ()
        return found


class Head(nn.Module):
    """The output head in bfloat16; for few tokens, whose next ones will be chosen, the likeliest exactly."""

    def __init__(self, of: nn.Linear) -> None:
        super().__init__()
        self.weight, self.bias = of.weight, of.bias
        self.packed = Packed(of.weight.data, None if of.bias is None else of.bias.data, torch.bfloat16)

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
                _replace(module, names, found, dtype)
                count += 1
    head = model.get_output_embeddings()  # type: ignore[operator]
    if plain_linear([head]):
        bias = None if head.bias is None else head.bias.data
        exact = Product(Packed(head.weight.data, bias, dtype), [head.out_features])
        model.set_output_embeddings(Head(head) if dtype == torch.bfloat16 else exact)  # type: ignore[operator]
        count += 1
    for weight in model.parameters():  # a copy of what is left, or the whole file would stay mapped for it
        weight.data = weight.data.clone()
    return count


def _replace(module: nn.Module, names: tuple[str, ...], found: list[nn.Linear], dtype: torch.dtype) -> None:
    weight = torch.cat([one.weight.data for one in found])
    bias = None if found[0].bias is None else torch.cat([one.bias.data for one in found])
    between = names == TOGETHER[1]  # gate and up: only an activation lies before the next product
    first = Product(Packed(weight, bias, dtype, between), [one.out_features for one in found])
    setattr(module, names[0], first)
    for index, name in enumerate(names[1:], 1):
        setattr(module, name, Sibling(first, index))
