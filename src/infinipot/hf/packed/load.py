"""A transformers model whose weights are given one by one: packed where that is wanted, else plain.

The skeleton has no weights, so nothing is held twice. Where the weights come from, a GGUF file or the files
of a hub model, is the source's business.
"""

from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from infinipot.errors import ModelError
from infinipot.hf.packed.blocks import Blocks
from infinipot.hf.packed.ggml import ramp
from infinipot.hf.packed.modules import (
    PackedEmbedding,
    PackedHead,
    PackedLinear,
    PackedMlp,
    PackedNorm,
    Shared,
)
from infinipot.hf.speed.joint import TOGETHER

Fill = Callable[[Any, "Source"], None]  # puts a source's weights into a model without any


class Source(Protocol):
    """Weights by the names they have in the model."""

    def has(self, name: str) -> bool:
        """Say whether there is such a weight."""

    def blocks(self, name: str) -> Blocks | None:
        """Return a weight in few bits, where it can be held so."""

    def values(self, name: str) -> Tensor:
        """Return a weight as it is, unpacked."""


def skeleton(config: Any, dtype: torch.dtype) -> Any:
    """Return a model without weights; its buffers are real."""
    from accelerate import init_empty_weights
    from transformers import AutoModelForCausalLM
    from transformers.initialization import no_init_weights

    with init_empty_weights(include_buffers=False), no_init_weights():
        return AutoModelForCausalLM.from_config(config, dtype=dtype)


def fill(model: Any, source: Source, dtype: torch.dtype, packed: bool) -> None:
    """Give a skeleton its weights: packed where that is wanted and possible, else in `dtype`."""
    if packed:
        _pack_ends(model, source)
        for prefix, module in list(model.named_modules()):
            _pack_children(module, prefix, source)
    ends = model.get_input_embeddings(), model.get_output_embeddings()
    apart = any(isinstance(one, (PackedEmbedding, PackedHead)) for one in ends)
    fill_plain(model, source, lambda name: source.values(name).to(dtype), apart)
    if packed:
        _simplify_norms(model)
        _fuse_mlps(model)


def fill_plain(model: Any, source: Source, plain: Callable[[str], Tensor], apart: bool) -> None:
    """Fill norms, biases and what could not be packed by `plain`; `apart` says that an end was packed."""
    tie = list if apart else model.tie_weights
    tie()  # one weight under two names is filled once
    left = [name for name, weight in model.named_parameters() if weight.is_meta]
    if missing := [name for name in left if not source.has(name)]:
        raise ModelError(f"there are no weights for {missing[0]}", remedy="is the model complete?")
    model.load_state_dict({name: plain(name) for name in left}, strict=False, assign=True)
    tie()


def _simplify_norms(model: Any) -> None:
    """Put norms of one step in the place of those that compute the same."""
    for module in list(model.modules()):
        for name, norm in list(module.named_children()):
            weight, eps = getattr(norm, "weight", None), getattr(norm, "variance_epsilon", None)
            if not type(norm).__name__.endswith("RMSNorm") or eps is None or weight is None:
                continue
            simple, x = PackedNorm(weight.data, eps), ramp(-3, 5, 2 * len(weight)).view(2, -1)
            if torch.allclose(simple(x), norm(x), rtol=1e-4, atol=1e-5):
                setattr(module, name, simple)


def _fuse_mlps(model: Any) -> None:
    """Put one graph in the place of gated feed-forward modules that compute the same."""
    for module in list(model.modules()):
        for name, inner in list(module.named_children()):
            parts = ("gate_proj", "up_proj", "down_proj")
            products: list[Any] = [getattr(inner, part, None) for part in parts]
            if len(list(inner.children())) != 4 or not all(isinstance(one, PackedLinear) for one in products):
                continue
            if any(one.bias is not None for one in products):
                continue
            made = PackedMlp(inner, *(one.shared.weights[one.index] for one in products))
            x = ramp(-1, 1, products[0].in_features).sin()[None]
            if torch.allclose(made(x), inner(x), rtol=1e-3, atol=1e-3 * float(made(x).abs().max())):
                setattr(module, name, made)


def _pack_children(module: nn.Module, prefix: str, source: Source) -> None:
    """Put packed products in the place of a module's linear children."""
    for names in (*TOGETHER, *((name,) for name, _ in list(module.named_children()))):
        plain: list[Any] = [getattr(module, name, None) for name in names]
        if not all(type(one) is nn.Linear for one in plain):
            continue
        paths = [f"{prefix}.{name}" if prefix else name for name in names]
        found = [_blocks(source, f"{path}.weight") for path in paths]
        blocks = [one for one in found if one is not None]
        _check_shapes(paths, plain, found)
        if len(blocks) < len(found):
            continue
        shared = Shared([one.quicker() for one in blocks], f"{prefix.rpartition('.')[2]} {names}")
        for index, (name, one) in enumerate(zip(names, plain, strict=True)):
            bias = None if one.bias is None else source.values(f"{paths[index]}.bias").float()
            setattr(module, name, PackedLinear(shared, index, bias))


def _check_shapes(paths: list[str], plain: list[Any], found: list[Blocks | None]) -> None:
    """Refuse weights of other shapes than their modules': ggml would end the process."""
    for path, one, blocks in zip(paths, plain, found, strict=True):
        if blocks is not None and blocks.shape != (one.out_features, one.in_features):
            there, wanted = "{} by {}".format(*blocks.shape), f"{one.out_features} by {one.in_features}"
            problem = f"{path}.weight is {there}, not {wanted}"
            raise ModelError(problem, remedy="is the model complete?")


def _pack_ends(model: Any, source: Source) -> None:
    """Pack the embedding and the output head, which may be one weight."""
    embedding, head = model.get_input_embeddings(), model.get_output_embeddings()
    names = {id(module): name for name, module in model.named_modules()}
    first = f"{names[id(embedding)]}.weight"
    blocks = _blocks(source, first)
    if type(head) is nn.Linear:
        last = f"{names[id(head)]}.weight"
        own = _blocks(source, last) if source.has(last) else blocks
        if own is not None:
            bias = None if head.bias is None else source.values(last.replace(".weight", ".bias"))
            model.set_output_embeddings(PackedHead(own.quicker(), bias))
    # Gemma's embeddings are scaled; any other kind of embedding stays as it is.
    scale = getattr(embedding, "embed_scale", None)
    known = type(embedding) is nn.Embedding or (
        isinstance(scale, Tensor) and "Scaled" in type(embedding).__name__
    )
    if blocks is not None and known:
        model.set_input_embeddings(PackedEmbedding(blocks, scale))


def _blocks(source: Source, name: str) -> Blocks | None:
    return source.blocks(name) if source.has(name) else None
