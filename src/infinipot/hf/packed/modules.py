"""A decoder's modules on weights in few bits: linear products, the embedding and the output head.

Few tokens (an answer's) go to ggml's kernels, which round their inputs to 8 bits a block. Many tokens (a
chunk's) are multiplied in float32 by torch, after a few rows of the weight at a time were unpacked into a
buffer that is used again: reading is exact. The obvious twin unpacks all and multiplies. After
`round_many` they are multiplied in whole numbers of 8 bits instead.
"""

from collections.abc import Iterator, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from infinipot.hf.packed import ggml
from infinipot.hf.packed.blocks import ALIGNED, Blocks, block_size, scratched, slices
from infinipot.hf.packed.ggml import Ggml, Graph
from infinipot.hf.packed.integers import inputs, product

FEW = 64  # tokens up to which ggml's kernels are the faster ones
SOME, STEP = 192, 32  # up to which they are for rows laid out anew; and by how many graphs of more differ
INNER = 2048  # columns of a gated module's wide activations that exist at a time, and as many rows of weights
WIDE = 1024  # columns of its narrowest weight from which a decoder may round to 8 bits: small ones lose more
LARGE = 128  # dimensions of a head whose attention is faster in bfloat16: at 64 softmax takes what is won
LIKELY = 64  # next tokens whose logits are computed in float32
_buffers: dict[tuple[str, int, int, int], Tensor] = {}  # of graphs: layers take turns, so they share


def buffer(role: str, number: int, rows: int, width: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Return a buffer of modules with this role, the same one in every layer; large ones are one."""
    held = rows if rows <= FEW else SOME
    key = role, number, held, width
    if key not in _buffers:
        _buffers.setdefault(key, torch.zeros(held, width, dtype=dtype, device="cpu"))  # two threads have one
    return _buffers[key][:rows]


def padded(rows: int) -> int:
    """Return how many rows a graph has for so many: a few graphs serve every number."""
    step = 4 if rows <= FEW else STEP
    return rows if rows <= 2 else -(-rows // step) * step


def few(weights: Sequence[Blocks], rounds: torch.dtype | None) -> int:
    """Return how many tokens at most go to ggml: more where rows are laid out for it, and more are rounded
    to 8 bits as well."""
    return SOME if rounds == torch.int8 and weights[0].laid is not None else FEW


class Shared:
    """Products of one input with several weights; few tokens get all of them in one call."""

    def __init__(self, weights: list[Blocks], role: str) -> None:
        self.weights, self.role = weights, role  # modules of one role never need each other's outputs
        self._graphs: dict[int, tuple[Graph, Tensor, list[Tensor]]] = {}
        self._seen: Tensor | None = None  # the input of `_parts`
        self._parts: list[Tensor] = []
        self._left = 0  # products of it that were not asked for yet
        self.rounds: torch.dtype | None = None  # what products of many tokens are rounded to

    def output(self, x: Tensor, index: int) -> Tensor:
        """The product [..., out] of x [..., in] with the weight of this index."""
        rows = x.shape[:-1].numel()
        many = rows > few(self.weights, self.rounds)
        found = None if many else ggml.find()
        if not (isinstance(found, Ggml) or (many and self.rounds == torch.int8)):
            return by_torch(x, self.weights[index], self.rounds if many else None)
        if self._seen is not x:
            flat = x.reshape(rows, -1)
            self._parts = self._few(flat, found) if isinstance(found, Ggml) else self._rounded(flat)
            self._seen, self._left = x, len(self.weights)
        self._left -= 1
        part = self._parts[index].view(*x.shape[:-1], -1)
        if self._left == 0:  # hold nothing between layers
            self._seen, self._parts = None, []
        return part

    def _rounded(self, x: Tensor) -> list[Tensor]:
        given = inputs(x)
        return [product(given, weight) for weight in self.weights]

    def _few(self, x: Tensor, kernels: Ggml) -> list[Tensor]:
        """Outputs for few rows, valid until the next call: whoever keeps one longer copies it."""
        rows, size = len(x), padded(len(x))
        with kernels.lock:
            if size not in self._graphs:
                self._graphs[size] = self._graph(size, kernels)
            graph, given, outs = self._graphs[size]
            (given if rows == size else given[:rows]).copy_(x)
            graph.run()
        return outs if rows == size else [out[:rows] for out in outs]

    def _graph(self, rows: int, kernels: Ggml) -> tuple[Graph, Tensor, list[Tensor]]:
        graph, given = Graph(kernels), buffer(self.role, 0, rows, self.weights[0].width)
        sizes = enumerate((weight.shape[0] for weight in self.weights), start=1)
        outs = [buffer(self.role, number, rows, size) for number, size in sizes]
        x = graph.input(given)
        for weight, out in zip(self.weights, outs, strict=True):
            graph.apply("ggml_mul_mat", weight.tensor(graph), x, out=out)
        return graph, given, outs


class PackedLinear(nn.Module):
    """Stands for a linear module, alone or among others that share its input."""

    def __init__(self, shared: Shared, index: int, bias: Tensor | None) -> None:
        super().__init__()
        self.shared, self.index, self.bias = shared, index, bias
        self.out_features, self.in_features = shared.weights[index].shape

    def forward(self, x: Tensor) -> Tensor:
        """As the plain module."""
        out = self.shared.output(x, self.index)
        return out if self.bias is None else out.add_(self.bias)


class PackedEmbedding(nn.Module):
    """Stands for an embedding; only the rows that are looked up are unpacked."""

    def __init__(self, blocks: Blocks, scale: Tensor | None = None) -> None:
        super().__init__()
        self.blocks, self.scale = blocks, scale

    def forward(self, ids: Tensor) -> Tensor:
        """Rows [..., in] of ids [...]."""
        rows = self.blocks.rows(ids.reshape(-1)).view(*ids.shape, -1)
        return rows if self.scale is None else rows * self.scale


def round_many(decoder: nn.Module, kind: torch.dtype) -> bool:
    """Let a decoder round products of many tokens to `kind`; 8 bits are for wide weights alone."""
    found: list[Shared | PackedMlp] = []
    for module in decoder.modules():
        if isinstance(module, (PackedLinear, PackedMlp)):
            found.append(module.shared if isinstance(module, PackedLinear) else module)
    narrowest = min((one.weights[0].width for one in found), default=0)
    if not found or (kind == torch.int8 and narrowest < WIDE):
        return False
    for one in found:
        one.rounds = kind
    return True


def mix_attention(decoder: nn.Module) -> None:
    """Let a decoder's attention multiply many tokens in bfloat16, where heads are large enough to gain."""
    for module in decoder.modules():
        if getattr(module, "head_dim", 0) >= LARGE:
            module.mixed = True  # type: ignore[assignment]  # torch types a module's attributes so


def packed_bytes(model: nn.Module) -> int:
    """Return the bytes of all packed weights of a model; what an embedding and a head share counts once."""
    linears = [module for module in model.modules() if isinstance(module, PackedLinear)]
    rows = [module.blocks for module in model.modules() if isinstance(module, PackedEmbedding)]
    found = [*rows, *(one.shared.weights[one.index] for one in linears)]
    return sum({blocks.data.data_ptr(): blocks.data.nbytes for blocks in found}.values())


class PackedMlp(nn.Module):
    """Stands for a gated feed-forward module whose activation is SiLU: for few tokens one graph.

    `inner`, the module itself, is the obvious twin. Of many tokens some of the wide columns are computed at
    a time: all of them would be the largest thing in memory beside the weights.
    """

    def __init__(self, inner: nn.Module, gate: Blocks, up: Blocks, down: Blocks) -> None:
        super().__init__()
        self.inner, self.weights = inner, (gate, up, down)
        self._graphs: dict[int, tuple[Graph, Tensor, Tensor]] = {}
        self.rounds: torch.dtype | None = None  # what products of many tokens are rounded to

    def forward(self, x: Tensor) -> Tensor:
        """As the plain module; valid until the next call."""
        rows, kernels = x.shape[:-1].numel(), ggml.find()
        if rows > few(self.weights, self.rounds):
            return self._many(x.reshape(rows, -1)).view(*x.shape[:-1], -1)
        if isinstance(kernels, str):
            return self.inner(x)  # type: ignore[no-any-return]  # torch types a module's result so
        size = padded(rows)
        with kernels.lock:
            if size not in self._graphs:
                self._graphs[size] = self._graph(size, kernels)
            graph, given, out = self._graphs[size]
            given[:rows].copy_(x.reshape(rows, -1))
            graph.run()
        return out[:rows].view(*x.shape[:-1], -1)

    def _many(self, x: Tensor) -> Tensor:
        gate, up, down = self.weights
        out, kind = ggml.floats(len(x), down.shape[0]).zero_(), self.rounds or torch.float32
        given = inputs(x) if kind == torch.int8 else None
        x = x if given is not None else x.to(kind)
        block = block_size(down.kind)[0]
        step = -(-down.width // block // -(-down.width // INNER)) * block  # even spans of whole blocks
        for first in range(0, down.width, step):
            last = min(first + step, down.width)
            if given is not None:
                wide = F.silu(product(given, gate.span(first, last), "gate"), inplace=True)
                wide.mul_(product(given, up.span(first, last), "up"))
                out.add_(product(inputs(wide), down.columns(first, last), "down"))
                continue
            wide = F.silu(F.linear(x, scratched(gate.span(first, last)).to(kind)), inplace=True)
            wide.mul_(F.linear(x, scratched(up.span(first, last)).to(kind)))
            out.add_(F.linear(wide, scratched(down.columns(first, last)).to(kind)))
        return out

    def _graph(self, rows: int, kernels: Ggml) -> tuple[Graph, Tensor, Tensor]:
        graph, given = Graph(kernels), buffer("gated", 0, rows, self.weights[0].width)
        gate, up, down = (one.tensor(graph) for one in self.weights)
        wide = [buffer("gated", number, rows, self.weights[0].shape[0]) for number in (1, 2, 3)]
        out, x = buffer("gated", 4, rows, self.weights[2].shape[0]), graph.input(given)
        both = [graph.apply("ggml_mul_mat", one, x, out=wide[at]) for at, one in enumerate((gate, up))]
        graph.apply("ggml_mul_mat", down, graph.apply("ggml_swiglu_split", *both, out=wide[2]), out=out)
        return graph, given, out


class PackedNorm(nn.Module):
    """Stands for a root-mean-square norm, in one step instead of six."""

    def __init__(self, weight: Tensor, eps: float) -> None:
        super().__init__()
        self.weight, self.eps = nn.Parameter(weight, requires_grad=False), eps

    def forward(self, x: Tensor) -> Tensor:
        """As the plain module, but for the last bits."""
        return F.rms_norm(x, self.weight.shape, self.weight, self.eps)


class PackedHead(nn.Module):
    """Stands for the output head; of few tokens, whose next ones will be chosen, the likeliest exactly."""

    def __init__(self, blocks: Blocks, bias: Tensor | None) -> None:
        super().__init__()
        self.blocks, self.linear = blocks, PackedLinear(Shared([blocks], "head"), 0, bias)
        self.rounds: torch.dtype | None = None  # what inputs and weights are rounded to for novelty

    def forward(self, x: Tensor) -> Tensor:
        """Logits [..., V]."""
        logits: Tensor = self.linear(x)
        if x.shape[:-1].numel() > FEW:
            return logits
        places = likeliest(logits, LIKELY)  # [..., LIKELY]
        rows = self.blocks.rows(places.reshape(-1)).view(*places.shape, -1)
        exact = (rows @ x[..., None])[..., 0]
        if self.linear.bias is not None:
            exact = exact + self.linear.bias[places]
        return logits.scatter(-1, places, exact)  # a copy: logits may be kept

    def parts(self, x: Tensor, most: int) -> Iterator[tuple[int, Tensor]]:
        """Yield where rows of the vocabulary begin, `most` weights at a time, and logits of x [n, k]."""
        if self.rounds != torch.int8:
            kind = self.rounds or torch.float32
            x = x.to(kind)
            yield from ((at, F.linear(x, rows.to(kind)).float()) for at, rows in slices(self.blocks, most))
            return
        given, step = inputs(x), max(ALIGNED, most // self.blocks.width // ALIGNED * ALIGNED)
        for first in range(0, len(self.blocks.data), step):
            yield first, product(given, self.blocks.span(first, first + step), "gate")


def likeliest(logits: Tensor, count: int, group: int = 128) -> Tensor:
    """Places [..., n] of the largest logits: first the groups that have them, since sorting all is slow."""
    groups = logits.shape[-1] // group
    if groups <= 2 * count:
        return logits.topk(min(count, logits.shape[-1]), dim=-1).indices
    whole = logits[..., : groups * group].reshape(*logits.shape[:-1], groups, group)
    best = whole.amax(-1).topk(count, dim=-1).indices  # [..., n]
    spots = (best[..., None] * group + torch.arange(group, device=best.device)).flatten(-2)
    rest = torch.arange(groups * group, logits.shape[-1], device=best.device)
    spots = torch.cat((spots, rest.expand(*logits.shape[:-1], -1)), dim=-1)
    return spots.gather(-1, logits.gather(-1, spots).topk(count, dim=-1).indices)


def by_torch(x: Tensor, weight: Blocks, kind: torch.dtype | None = None) -> Tensor:
    """The product [..., out] in float32, or rounded to `kind`, some rows of the weight unpacked at a time."""
    flat = x.reshape(-1, weight.width).to(kind or torch.float32)
    out = ggml.floats(len(flat), weight.shape[0])
    for start, rows in slices(weight):
        into = out[:, start : start + len(rows)]
        into.copy_(F.linear(flat, rows.to(kind))) if kind else torch.mm(flat, rows.T, out=into)
    return out.view(*x.shape[:-1], -1)
