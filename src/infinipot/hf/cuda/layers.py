"""Tokens through a decoder on a card by our own kernels around its products: few launches, nothing compiled.

What stands around a product (norms, sums, RoPE, SiLU, rounding to 8-bit floats) is one kernel between two
products, which reads and writes memory once. The decoder itself is the obvious twin, and decides: a decoder
of other parts, or one that computes something else, has no such layers.
"""

from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from infinipot.core.attention import LogitSpec
from infinipot.core.cuda.dispatch import kernels
from infinipot.core.pot import Pot
from infinipot.core.pot_layer import PotLayer
from infinipot.core.rows import FixedRows
from infinipot.hf.cuda import fp8
from infinipot.hf.cuda.modules import GROUPS, Fp8Linear, GroupedLinear
from infinipot.hf.speed.joint import Part

PARTS = {"self_attn", "mlp", "input_layernorm", "post_attention_layernorm"}
PRODUCTS = ("q_proj", "k_proj", "v_proj", "o_proj")
GATED = ("gate_proj", "up_proj", "down_proj")
GROUPS_OF_A_LAYER = 4  # of products that share their input
Input = Tensor | tuple[Tensor, Tensor]  # of a product: rows as they are, or in 8-bit floats with their scales


class Product:
    """A weight, alone or of several modules of one input, and what is added."""

    def __init__(self, modules: list[Any]) -> None:
        biases = [one.bias for one in modules]
        self.bias = None if biases[0] is None else torch.cat([one for one in biases if one is not None])
        self.dtype = torch.float32  # of what comes out, where that cannot be seen by the input
        self.module, self.whole = modules[0], modules[0].joint if type(modules[0]) is Part else modules[0]

    @property
    def rounds(self) -> bool:
        """Say whether many tokens' input is to be rounded."""
        return False

    def __call__(self, x: Input) -> Tensor:
        """x [n, in] times the weight."""
        assert isinstance(x, Tensor)
        return F.linear(x, self.whole.weight, self.bias)


class EightBitFloats(Product):
    """The same in 8-bit floats."""

    @property
    def rounds(self) -> bool:
        """Say whether many tokens' input is to be rounded."""
        return bool(self.module.inputs_are_rounded)

    def __call__(self, x: Input) -> Tensor:
        """x [n, in] times the weight: rounded already, alone, or as it is where nothing may be rounded."""
        held = self.module.held
        if isinstance(x, tuple):
            out = fp8.rounded_product(*x, held.data, held.scale, self.dtype)
        elif self.rounds:
            out = fp8.product(x, held.data, held.scale)
        else:
            out = F.linear(x.float(), held.weight.unpacked()).to(x.dtype)
        return out if self.bias is None else out + self.bias


class CardLayers:
    """What a decoder does with tokens, by our own kernels."""

    early: ClassVar = False  # whether kernels begin while a product ends: torch's own do not gain by it
    kinds: ClassVar[dict[type[nn.Module], type[Product]]] = {  # of modules, and how they are multiplied
        nn.Linear: Product,
        Part: Product,
        Fp8Linear: EightBitFloats,
    }

    def __init__(self, decoder: Any, products: list[list[Product]]) -> None:
        self.decoder, self.products, self.compared = decoder, products, _modules(decoder)
        for product in (one for several in products for one in several):
            product.dtype = decoder.norm.weight.dtype
        first = decoder.layers[0].self_attn
        self.size, self.scale = int(first.head_dim), float(first.scaling)
        self.factor = float(decoder.rotary_emb.attention_scaling)
        self.kv_heads = first.k_proj.out_features // self.size
        self.heads = first.q_proj.out_features // self.size

    @classmethod
    def of(cls, decoder: Any) -> "CardLayers | None":
        """Return the layers of a decoder on a card, where they are the usual ones."""
        layers: Any = getattr(decoder, "layers", ())
        if not layers or not _usual_norm(getattr(decoder, "norm", None)) or not all(map(_usual, layers)):
            return None
        if (size := int(layers[0].self_attn.head_dim)) & (size - 1):
            return None  # kernels have powers of two
        if any(one._forward_hooks or one._forward_pre_hooks for one in decoder.modules()):
            return None  # somebody listens
        products = [cls._products(layer) for layer in layers]
        alike = len({(one.self_attn.head_dim, one.self_attn.scaling) for one in layers}) == 1
        fast = kernels(layers[0].input_layernorm.weight.device)
        known = alike and fast and all(len(one) == GROUPS_OF_A_LAYER for one in products)
        return cls(decoder, products) if known else None

    @classmethod
    def _products(cls, layer: Any) -> list[Product]:
        """A layer's products that are known: of the attention's input and output, of the inner ones."""
        groups = [[getattr(layer.self_attn, name) for name in PRODUCTS[:3]], [layer.self_attn.o_proj]]
        groups += [[getattr(layer.mlp, name) for name in GATED[:2]], [layer.mlp.down_proj]]
        found = [cls.kinds.get(type(group[0])) for group in groups]
        return [kind(group) for kind, group in zip(found, groups, strict=True) if kind and _joint(group)]

    def stands(self) -> bool:
        """Say whether the decoder has the modules that were compared still, and nobody listens to them."""
        pairs = zip(self.compared, _modules(self.decoder), strict=True)
        return all(one is now and not (now._forward_hooks or now._forward_pre_hooks) for one, now in pairs)

    @torch.no_grad()
    def run(self, tokens: Tensor, places: Tensor, pot: Any, frequencies: Tensor) -> Tensor:
        """Write tokens [B, n] at places [1 or B, n] into the pot; return their hidden states [B, n, H]."""
        decoder, fast = self.decoder, kernels(tokens.device)
        total, more, early = decoder.embed_tokens(tokens).flatten(0, 1), None, False
        places, frequencies = places.reshape(-1), frequencies.to(tokens.device)
        turn = fast.angles_at(places, frequencies, self.factor, total.dtype)
        rounds = len(total) > 1 and all(one.rounds for several in self.products for one in several)
        for index, (layer, products) in enumerate(zip(decoder.layers, self.products, strict=True)):
            qkv, output, gate_up, down = products
            norm = layer.input_layernorm
            total, x = fast.add_norm(total, more, norm.weight, norm.variance_epsilon, early, rounds)
            x = output(self._attend(index, qkv(x), turn, pot, tokens.shape, rounds))
            norm, early = layer.post_attention_layernorm, self.early
            total, x = fast.add_norm(total, x, norm.weight, norm.variance_epsilon, early, rounds)
            more = down(self._gated(gate_up(x), rounds))
        hidden: Tensor
        _, hidden = fast.add_norm(total, more, decoder.norm.weight, decoder.norm.variance_epsilon, self.early)
        return hidden.view(*tokens.shape, -1)

    def _gated(self, x: Tensor, rounds: bool) -> Input:
        """SiLU of gates times what they let through, of rows [n, 2 K]."""
        found: Input = kernels(x.device).gated(x, rounds, self.early)
        return found

    def _attend(
        self, index: int, qkv: Tensor, turn: tuple[Tensor, Tensor], pot: Any, shape: torch.Size, rounds: bool
    ) -> Input:
        """Attention [B n, Hq D] of tokens' heads [B n, all heads D]: turned and written on the way."""
        fast, group = kernels(qkv.device), self.heads // self.kv_heads
        rows = pot if isinstance(pot, FixedRows) and pot.plain else None
        if rows and len(qkv) == 1 and fast.turns(qkv, self.size, group, rows.slots):
            into = *rows.at[:, index], rows.fills, rows.slots
            found: Tensor = fast.attend_turned(qkv, *turn, *into, self.scale, self.kv_heads)
            return found
        queries, keys, values = self._written(index, qkv, turn, pot, shape)
        rounded: list[Input] = []

        def merge(*parts: Tensor) -> Tensor:  # both in one launch; what is returned nobody looks at
            rounded.append(fast.merge_rounded(*parts))
            return parts[0]

        spec = LogitSpec(self.scale, merge=merge if rounds else None)
        out: Tensor = pot.attend(index, queries, keys, values, spec)
        if rounded:
            (whole,) = rounded  # all tokens at once
            return whole
        flat = out.transpose(1, 2).reshape(len(qkv), -1)
        return fast.round_rows(flat) if rounds else flat

    def _written(
        self, index: int, qkv: Tensor, turn: tuple[Tensor, Tensor], pot: Any, shape: torch.Size
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, and what of keys and values they may see, [B, heads, slots, D]."""
        fast, sizes = kernels(qkv.device), [self.heads, self.kv_heads, self.kv_heads]
        heads = qkv.view(*shape, -1, self.size).transpose(1, 2)
        queries, keys, values = torch.split(heads, sizes, dim=1)
        one = isinstance(pot, Pot) and type(pot.layers[index]) is PotLayer
        if one and fast.serves(queries, keys):
            return queries, *pot.append(index, keys, values, [queries, *turn])
        each = (x.expand(len(qkv) // len(x), *x.shape).flatten(0, 1) for x in turn)
        parts = fast.apart(qkv, *each, self.kv_heads, self.early)
        queries, keys, values = (part.view(*shape, -1, self.size).transpose(1, 2) for part in parts)
        return queries, *pot.append(index, keys, values)


def _modules(decoder: Any) -> list[nn.Module]:
    """A decoder's linear modules, in whose place adapters put others."""
    found: list[nn.Module] = []
    for layer in decoder.layers:
        found += [getattr(layer.self_attn, name) for name in PRODUCTS]
        found += [getattr(layer.mlp, name) for name in GATED]
    return found


def _joint(modules: list[Any]) -> bool:
    """Products that are one weight, in their order, all with a bias or none."""
    if len({(type(one), one.bias is None) for one in modules}) > 1:
        return False
    first = modules[0]
    of = getattr(first, "held", None) or getattr(first, "joint", None)  # what holds a joint weight
    if of is None:
        return len(modules) == 1
    known = not isinstance(first, GroupedLinear) or type(first) is Fp8Linear or of.group in GROUPS
    whole = all(of in (getattr(one, "held", None), one.joint) for one in modules)
    ordered = [one.index for one in modules] == list(range(len(of.sizes)))
    return known and whole and ordered


def _usual_norm(norm: Any) -> bool:
    """Say whether a module has what Llama's norm has; what it computes is compared later."""
    known = isinstance(norm, nn.Module) and type(norm).__name__.endswith("RMSNorm")
    return (
        known and hasattr(norm, "variance_epsilon") and [n for n, _ in norm.named_parameters()] == ["weight"]
    )


def _usual(layer: Any) -> bool:
    """Say whether a layer has the usual parts and no others."""
    if {name for name, _ in layer.named_children()} != PARTS:
        return False
    attention, mlp = layer.self_attn, layer.mlp
    if {name for name, _ in attention.named_children()} != set(PRODUCTS):
        return False
    return (
        {name for name, _ in mlp.named_children()} == {*GATED, "act_fn"}
        and type(mlp.act_fn).__name__ in ("SiLU", "SiLUActivation")
        and all(map(_usual_norm, (layer.input_layernorm, layer.post_attention_layernorm)))
        and not list(attention.parameters(recurse=False))  # such as attention sinks
    )
