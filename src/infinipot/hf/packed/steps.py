"""One token through a decoder on packed weights: everything between two attentions is one graph of ggml's.

A token's products take little time, so that what stands around them (norms, biases, RoPE, sums, each a call
of its own) would take as much again. Attention stays the pot's. The decoder itself is the obvious twin, and
decides: a decoder of other parts, or one that computes something else, has no steps.
"""

from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor

from infinipot.core.attention import LogitSpec
from infinipot.hf.packed import ggml
from infinipot.hf.packed.blocks import Blocks
from infinipot.hf.packed.ggml import NODES, Ggml, Graph, aligned
from infinipot.hf.packed.modules import (
    FEW,
    PackedEmbedding,
    PackedLinear,
    PackedMlp,
    PackedNorm,
    buffer,
    padded,
)
from infinipot.hf.speed import threads

if TYPE_CHECKING:
    from infinipot.hf.packed.whole import WholeToken

HALVES = 2  # ggml's mode of RoPE that turns a head's first half with its second
BASE = 10_000.0  # of RoPE's frequencies, before the factors that make them the model's own
PARTS = {"self_attn", "mlp", "input_layernorm", "post_attention_layernorm"}
PRODUCTS = ("q_proj", "k_proj", "v_proj", "o_proj")


class Written(Protocol):
    """What a pot, or several, are to a layer."""

    def append(self, layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Take new keys and values; return what queries may see."""

    def attend(self, layer: int, queries: Tensor, keys: Tensor, values: Tensor, spec: LogitSpec) -> Tensor:
        """Return the attention of new queries."""


class Steps:
    """The graphs of a decoder, one before each layer's attention and one after the last."""

    most = FEW  # rows of one step

    def __init__(self, decoder: Any, kernels: Ggml) -> None:
        self.decoder, self.kernels = decoder, kernels
        attention = decoder.layers[0].self_attn
        self.size, self.scale = int(attention.head_dim), float(attention.scaling)
        self.widths = [getattr(attention, name).out_features for name in PRODUCTS]
        self.factor = float(decoder.rotary_emb.attention_scaling)
        self._graphs: dict[int, list[Graph]] = {}
        self._turned = torch.empty(0), torch.empty(0)  # the last frequencies of RoPE, and their factors
        self.whole: WholeToken | None = None  # single tokens of one plain pot, where that comes to the same

    @classmethod
    def of(cls, decoder: Any) -> "Steps | None":
        """Return the steps of a decoder whose layers are the usual ones, on packed weights."""
        kernels, layers = ggml.find(), getattr(decoder, "layers", ())
        ends = getattr(decoder, "embed_tokens", None), getattr(decoder, "norm", None)
        usual = isinstance(ends[0], PackedEmbedding) and isinstance(ends[1], PackedNorm)
        usual = usual and all(map(_usual, layers))
        alike = usual and len({(one.self_attn.head_dim, one.self_attn.scaling) for one in layers}) == 1
        return cls(decoder, kernels) if alike and isinstance(kernels, Ggml) else None

    @torch.no_grad()
    def run(self, tokens: Tensor, places: Tensor, pot: Written, frequencies: Tensor) -> Tensor:
        """Write tokens [B, 1] at places [B, 1] into the pot; return their hidden states [B, 1, H]."""
        threads.follow()
        if self.whole is not None and self.whole.serves(tokens, pot):
            return self.whole.run(tokens, places, pot, frequencies)
        rows, size = len(tokens), padded(len(tokens))
        if size not in self._graphs:
            self._graphs[size] = [self._graph(size, index) for index in range(len(self.decoder.layers) + 1)]
        _, attended, out, _, _, *heads = self.given(tokens, places, frequencies)
        *before, last = self._graphs[size]
        queries, keys, values = (one[:rows].view(rows, -1, 1, self.size) for one in heads)
        spec, attended = LogitSpec(self.scale), attended[:rows].view(queries.shape)
        for index, graph in enumerate(before):
            self.compute(graph)
            attended.copy_(pot.attend(index, queries, *pot.append(index, keys, values), spec))
        self.compute(last)
        return out[:rows, None].clone()

    def compute(self, graph: Graph) -> None:
        """Run one of the decoder's graphs."""
        with self.kernels.lock:
            graph.run()

    def given(self, tokens: Tensor, places: Tensor, frequencies: Tensor) -> list[Tensor]:
        """Return the buffers with tokens [B, 1], their places [B, 1] and RoPE in them."""
        rows, found = len(tokens), self.buffers(padded(len(tokens)))
        residual, _, _, where, factors, *_ = found
        where[0, :rows] = places.expand(rows, 1)[:, 0]
        if self._turned[0] is not frequencies:
            shares = torch.arange(len(frequencies), dtype=torch.float64, device="cpu") / len(frequencies)
            own = BASE**-shares  # ggml's frequencies, which it divides by these factors to have the model's
            self._turned = frequencies, (own / frequencies.double()).float()
        factors[0] = self._turned[1]
        residual[:rows] = self.decoder.embed_tokens(tokens)[:, 0]
        return found

    def buffers(self, rows: int) -> list[Tensor]:
        """What graphs read and write: residual, attention, last output, places, factors, the new heads."""
        width, (queries, keys, values, _) = self.decoder.embed_tokens.blocks.width, self.widths
        numbers = [buffer("places", 0, 1, rows, torch.int32), buffer("factors", 0, 1, self.size // 2)]
        wide = enumerate((width, queries, width, queries, keys, values))
        found = [buffer("step", number, rows, one) for number, one in wide]
        return [*found[:3], *numbers, *found[3:]]

    def _graph(self, rows: int, index: int) -> Graph:
        """Return what is computed between the attentions of the layers `index` - 1 and `index`."""
        layers, draft, buffers = self.decoder.layers, Draft(self.kernels, rows), self.buffers(rows)
        x = draft.graph.input(buffers[0])
        if index:
            x = self.after(draft, x, layers[index - 1], buffers)
        if index == len(layers):
            draft.normed(x, self.decoder.norm, buffers[2])
        else:
            self.before(draft, x, layers[index], buffers)
        return draft.graph

    def before(self, draft: "Draft", x: int, layer: Any, buffers: list[Tensor]) -> list[int]:
        """Add what comes before a layer's attention; return its queries, keys and values."""
        x, (_, _, _, places, factors, *heads) = draft.normed(x, layer.input_layernorm), buffers
        where, found = (draft.graph.input(places), draft.graph.input(factors)), []
        for name, into, turned in zip(PRODUCTS, heads, (True, True, False), strict=False):
            made = draft.linear(x, getattr(layer.self_attn, name), None if turned else into)
            if turned:
                apart = draft.graph.split(made, self.size, into.shape[1] // self.size, draft.rows)
                rope = (*where, self.size, HALVES, 0, BASE, 1.0, 0.0, self.factor, 32.0, 1.0)
                made = draft.graph.apply("ggml_rope_ext", apart, *rope, out=into)
            found.append(made)
        return found

    def after(self, draft: "Draft", x: int, layer: Any, buffers: list[Tensor]) -> int:
        """Add what comes after a layer's attention; return the residual stream."""
        residual, attended, *_ = buffers
        added = draft.linear(draft.graph.input(attended), layer.self_attn.o_proj)
        x = draft.graph.apply("ggml_add", x, added, out=draft.wide(residual.shape[1]))
        added = draft.gated(draft.normed(x, layer.post_attention_layernorm), layer.mlp.weights)
        return draft.graph.apply("ggml_add", x, added, out=residual)


class Draft:
    """A graph in the making; its inner buffers are those of every other one."""

    def __init__(self, kernels: Ggml, rows: int, layers: int = 1) -> None:
        self.graph, self.rows, self.used = Graph(kernels, layers * NODES), rows, 0

    def wide(self, width: int) -> Tensor:
        """Return room for a result within a layer."""
        self.used += 1
        return buffer("inner", self.used, self.rows, width)

    def product(self, x: int, weight: Blocks, out: Tensor | None = None) -> int:
        """Add a product with a weight."""
        tensor = weight.tensor(self.graph)
        into = self.wide(weight.shape[0]) if out is None else out
        return self.graph.apply("ggml_mul_mat", tensor, x, out=into)

    def linear(self, x: int, module: PackedLinear, out: Tensor | None = None) -> int:
        """Add a linear module, its bias too."""
        weight, bias = module.shared.weights[module.index], module.bias
        if bias is None:
            return self.product(x, weight, out)
        made, into = self.product(x, weight), self.wide(len(bias)) if out is None else out
        return self.graph.apply("ggml_add", made, self.graph.input(aligned(bias[None])), out=into)

    def normed(self, x: int, norm: PackedNorm, out: Tensor | None = None) -> int:
        """Add a norm and its weight."""
        width = len(norm.weight)
        made = self.graph.apply("ggml_rms_norm", x, norm.eps, out=self.wide(width))
        weight = self.graph.input(aligned(norm.weight.data[None]))
        return self.graph.apply("ggml_mul", made, weight, out=self.wide(width) if out is None else out)

    def gated(self, x: int, weights: tuple[Blocks, ...]) -> int:
        """Add a feed-forward module."""
        gate, up, down = weights
        both = self.product(x, gate), self.product(x, up)
        return self.product(self.graph.apply("ggml_swiglu_split", *both, out=self.wide(gate.shape[0])), down)


def _usual(layer: Any) -> bool:
    """Say whether a layer has the usual parts and no others."""
    if {name for name, _ in layer.named_children()} != PARTS:
        return False
    norms = (layer.input_layernorm, layer.post_attention_layernorm)
    products = [getattr(layer.self_attn, name, None) for name in PRODUCTS]
    return (
        isinstance(layer.mlp, PackedMlp)
        and all(isinstance(norm, PackedNorm) for norm in norms)
        and all(isinstance(one, PackedLinear) for one in products)
        and {name for name, _ in layer.self_attn.named_children()} == set(PRODUCTS)
        and not list(layer.self_attn.parameters(recurse=False))  # such as attention sinks
    )
