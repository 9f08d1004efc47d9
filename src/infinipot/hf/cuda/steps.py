"""One token through a decoder on weights in few bits on a card: few launches, begun while others end.

A token's products take microseconds, so that what stands around them (norms, sums, RoPE, SiLU, each a launch
of its own) would take half as long again. The decoder itself is the obvious twin, and decides: a decoder of
other parts, or one that computes something else, has no such steps.
"""

from typing import Any

import torch
from torch import Tensor, nn

from infinipot.core.attention import LogitSpec
from infinipot.core.cuda.dispatch import kernels
from infinipot.core.rows import FixedRows
from infinipot.hf.cuda.modules import GROUPS, GroupedEmbedding, GroupedLinear, Held

PARTS = {"self_attn", "mlp", "input_layernorm", "post_attention_layernorm"}
PRODUCTS = ("q_proj", "k_proj", "v_proj", "o_proj")
GATED = ("gate_proj", "up_proj", "down_proj")


class Product:
    """A grouped weight, alone or of several modules, and what is added."""

    def __init__(self, modules: list[GroupedLinear], gated: bool = False) -> None:
        self.held, self.gated = modules[0].held, gated
        biases = [one.bias for one in modules]
        self.bias = None if biases[0] is None else torch.cat([one for one in biases if one is not None])

    def __call__(self, x: Tensor) -> Tensor:
        """x [n, in] times the weight."""
        held = self.held
        weight = held.data, held.scale, held.least, held.group
        found: Tensor = kernels(x.device).product(x, *weight, self.bias, self.gated)
        return found


class CardSteps:
    """What a decoder does with one token, by our own kernels."""

    most = 1  # rows of one step

    def __init__(self, decoder: Any) -> None:
        self.decoder = decoder
        first = decoder.layers[0].self_attn
        self.size, self.scale = int(first.head_dim), float(first.scaling)
        self.factor = float(decoder.rotary_emb.attention_scaling)
        self.kv_heads = first.k_proj.out_features // self.size
        self.heads = first.q_proj.out_features // self.size
        self.products = [_products(layer) for layer in decoder.layers]

    @classmethod
    def of(cls, decoder: Any) -> "CardSteps | None":
        """Return the steps of a decoder whose layers are the usual ones, on weights in few bits on a card."""
        layers: Any = getattr(decoder, "layers", ())
        ends = getattr(decoder, "embed_tokens", None), getattr(decoder, "norm", None)
        usual = isinstance(ends[0], GroupedEmbedding) and _usual_norm(ends[1]) and all(map(_usual, layers))
        alike = usual and len({(one.self_attn.head_dim, one.self_attn.scaling) for one in layers}) == 1
        return cls(decoder) if alike and kernels(layers[0].input_layernorm.weight.device) else None

    @torch.no_grad()
    def run(self, tokens: Tensor, places: Tensor, pot: Any, frequencies: Tensor) -> Tensor:
        """Write tokens [1, 1] at places [1, 1] into the pot; return their hidden states [1, 1, H]."""
        decoder, fast = self.decoder, kernels(tokens.device)
        total, more, early = decoder.embed_tokens(tokens)[:, 0], None, False
        frequencies = frequencies.to(tokens.device)
        turn = fast.angles_at(places[:, 0], frequencies, self.factor, total.dtype)
        for index, (layer, products) in enumerate(zip(decoder.layers, self.products, strict=True)):
            qkv, output, gate_up, down = products
            norm = layer.input_layernorm
            total, x = fast.add_norm(total, more, norm.weight, norm.variance_epsilon, early)
            x = output(self._attend(index, qkv(x), turn, pot))
            norm, early = layer.post_attention_layernorm, True
            total, x = fast.add_norm(total, x, norm.weight, norm.variance_epsilon)
            more = down(gate_up(x))
        hidden: Tensor = fast.add_norm(total, more, decoder.norm.weight, decoder.norm.variance_epsilon)[1]
        return hidden[:, None]

    def _attend(self, index: int, qkv: Tensor, turn: tuple[Tensor, Tensor], pot: Any) -> Tensor:
        """Attention [1, Hq D] of a token's heads, which are turned and written on the way."""
        fast, group = kernels(qkv.device), self.heads // self.kv_heads
        rows = pot if isinstance(pot, FixedRows) and pot.plain else None
        if rows and fast.turns(qkv, self.size, group, rows.slots):
            into = *rows.at[:, index], rows.fills, rows.slots
            found: Tensor = fast.attend_turned(qkv, *turn, *into, self.scale, self.kv_heads)
            return found
        apart = fast.turn(qkv, *turn, self.heads + self.kv_heads).view(len(qkv), -1, 1, self.size)
        queries, keys, values = apart.split([self.heads, self.kv_heads, self.kv_heads], dim=1)
        spec = LogitSpec(self.scale)
        out: Tensor = pot.attend(index, queries, *pot.append(index, keys, values), spec)
        return out.reshape(len(qkv), -1)


def _products(layer: Any) -> list[Product]:
    """A layer's products: of the attention's input and output, of the feed-forward module's both."""
    attention, mlp = layer.self_attn, layer.mlp
    apart = [getattr(attention, name) for name in PRODUCTS]
    both = Product([mlp.gate_proj, mlp.up_proj], gated=True)
    return [Product(apart[:3]), Product(apart[3:]), both, Product([mlp.down_proj])]


def _joint(modules: list[Any]) -> bool:
    """Grouped products that are one weight, in their order, all with a bias or none."""
    if not all(type(one) is GroupedLinear and one.held.group in GROUPS for one in modules):
        return False
    held: Held = modules[0].held
    whole = all(one.held is held for one in modules) and len(held.sizes) == len(modules)
    ordered = [one.index for one in modules] == list(range(len(modules)))
    return whole and ordered and len({one.bias is None for one in modules}) == 1


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
    if {name for name, _ in mlp.named_children()} != {*GATED, "act_fn"}:
        return False
    apart = [getattr(attention, name) for name in PRODUCTS]
    inner = [getattr(mlp, name) for name in GATED]
    groups = (apart[:3], apart[3:], inner[:2], inner[2:])
    return (
        all(map(_joint, groups))
        and type(mlp.act_fn).__name__ in ("SiLU", "SiLUActivation")
        and all(map(_usual_norm, (layer.input_layernorm, layer.post_attention_layernorm)))
        and not list(attention.parameters(recurse=False))  # such as attention sinks
    )
