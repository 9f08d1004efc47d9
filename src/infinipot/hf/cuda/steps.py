"""One token through a decoder on weights in few bits on a card: few launches, begun while others end.

A token's products take microseconds, so that what stands around them (norms, sums, RoPE, SiLU, each a launch
of its own) would take half as long again. SiLU is part of the product of gate and up here.
"""

from typing import Any, ClassVar

from torch import Tensor, nn

from infinipot.core.cuda.dispatch import kernels
from infinipot.hf.cuda.layers import CardLayers, Input, Product
from infinipot.hf.cuda.modules import GroupedEmbedding, GroupedLinear


class GroupedProduct(Product):
    """A grouped weight; of gate and up with SiLU."""

    def __init__(self, modules: list[Any]) -> None:
        super().__init__(modules)
        self.gated = len(modules) == 2

    def __call__(self, x: Input) -> Tensor:
        """x [1, in] times the weight."""
        held = self.module.held
        weight = held.data, held.scale, held.least, held.group
        found: Tensor = kernels(held.data.device).product(x, *weight, self.bias, self.gated)
        return found


class CardSteps(CardLayers):
    """What a decoder does with one token, by our own kernels."""

    most = 1  # rows of one step
    early: ClassVar = True
    kinds: ClassVar[dict[type[nn.Module], type[Product]]] = {GroupedLinear: GroupedProduct}

    @classmethod
    def of(cls, decoder: Any) -> "CardSteps | None":
        """Return the steps of a decoder whose layers are the usual ones, on weights in few bits on a card."""
        known = isinstance(getattr(decoder, "embed_tokens", None), GroupedEmbedding)
        found = super().of(decoder) if known else None
        return found if isinstance(found, cls) else None

    def _gated(self, x: Tensor, rounds: bool) -> Input:  # noqa: ARG002  one token is not rounded
        """What the product of gate and up has done already."""
        return x
