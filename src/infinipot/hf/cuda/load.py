"""A transformers model whose weights go to a card in few bits, one after the other: never all of them wide.

Where the weights come from, the files of a hub model, a GGUF file or a random generator, is the source's
business (`packed.load.Source`). The embedding and the head are held in 8 bits where the rest has 4.
"""

from typing import Any

import torch
from torch import Tensor, nn

from infinipot.hf.cuda import fp8
from infinipot.hf.cuda.grouped import Grouped, fits, grouped
from infinipot.hf.cuda.modules import Fp8Linear, GroupedEmbedding, GroupedHead, GroupedLinear, Held
from infinipot.hf.cuda.repack import repacked
from infinipot.hf.packed.load import Fill, Source, fill_plain
from infinipot.hf.speed.joint import TOGETHER

BITS = {"int4": 4, "int8": 8}


class Filler:
    """Gives a skeleton (`packed.load.skeleton`) its weights on a device; `how` is int4, int8 or fp8."""

    def __init__(self, source: Source, how: str, device: torch.device, dtype: torch.dtype) -> None:
        self.source, self.how, self.device, self.dtype = source, how, device, dtype

    def fill(self, model: Any) -> None:
        """Put every weight into its place."""
        apart = self.how in BITS and self._ends(model)
        for prefix, module in list(model.named_modules()):
            self._children(module, prefix, model.get_output_embeddings())
        fill_plain(model, self.source, self._plain, apart)
        if self.how == "fp8" and fp8.ROUGH_HEAD:
            fp8.add_rough(model.get_output_embeddings())
        for module in model.modules():  # buffers of the skeleton, such as RoPE's frequencies
            for name, buffer in list(module.named_buffers(recurse=False)):
                setattr(module, name, buffer.to(self.device))

    def _weight(self, name: str, bits: int) -> Grouped | None:
        """A weight in groups: as its file has it where that can be, else rounded."""
        blocks = self.source.blocks(name)
        if blocks is not None and (exact := repacked(blocks, self.device)) is not None:
            return exact
        values = self.source.values(name)
        return grouped(values, bits, self.device) if fits(values) else None

    def _children(self, module: nn.Module, prefix: str, head: nn.Module) -> None:
        """Put products in few bits in the place of a module's linear children."""
        done: set[str] = set()
        for names in (*TOGETHER, *((name,) for name, _ in list(module.named_children()))):
            plain: list[Any] = [getattr(module, name, None) for name in names]
            if done & {*names} or not all(type(one) is nn.Linear and one is not head for one in plain):
                continue
            paths = [f"{prefix}.{name}" if prefix else name for name in names]
            if not all(self.source.has(f"{path}.weight") for path in paths):
                continue
            biases = [
                None if one.bias is None else self._plain(f"{path}.bias")
                for one, path in zip(plain, paths, strict=True)
            ]
            made = self._products([f"{path}.weight" for path in paths], biases)
            for name, product in zip(names, made, strict=True):
                if product is not None:
                    setattr(module, name, product)
                    done.add(name)
            torch.cuda.empty_cache()  # else weights lie in pieces of larger blocks, whose rest nobody uses

    def _products(self, names: list[str], biases: list[Tensor | None]) -> list[nn.Module | None]:
        if self.how == "fp8":
            return self._eight([self.source.values(name) for name in names], biases)
        weights = [self._weight(name, BITS[self.how]) for name in names]
        found = [one for one in weights if one is not None]
        if len(found) == len(weights) and len({one.layout for one in found}) == 1:
            held = Held(found)
            return [GroupedLinear(held, index, bias) for index, bias in enumerate(biases)]
        apart = zip(weights, biases, strict=True)  # formats differ: each by itself
        return [None if one is None else GroupedLinear(Held([one]), 0, bias) for one, bias in apart]

    def _eight(self, values: list[Tensor], biases: list[Tensor | None]) -> list[nn.Module | None]:
        if all(size % fp8.MULTIPLE == 0 for one in values for size in one.shape):
            held = Held([fp8.rounded_weight(values, self.device)], [len(one) for one in values])
            return [Fp8Linear(held, index, bias) for index, bias in enumerate(biases)]
        alone = zip(values, biases, strict=True) if len(values) > 1 else ()
        return [self._eight([one], [bias])[0] for one, bias in alone] or [None]

    def _ends(self, model: Any) -> bool:
        """Put the embedding and the head in 8 bits, which may be one weight; say whether any was."""
        embedding, head = model.get_input_embeddings(), model.get_output_embeddings()
        names = {id(module): name for name, module in model.named_modules()}
        first = f"{names[id(embedding)]}.weight"
        tied = self._weight(first, 8)
        held = None if tied is None else Held([tied])
        if type(head) is nn.Linear:
            last = f"{names[id(head)]}.weight"
            shared = bool(getattr(model.config.get_text_config(), "tie_word_embeddings", False))
            own = self._weight(last, 8) if self.source.has(last) and not shared else tied
            if own is not None:
                bias = None if head.bias is None else self._plain(last.replace(".weight", ".bias"))
                kept = held if own is tied and held is not None else Held([own])
                model.set_output_embeddings(GroupedHead(kept, bias, self.dtype))
        scale = getattr(embedding, "embed_scale", None)
        known = type(embedding) is nn.Embedding or (
            isinstance(scale, Tensor) and "Scaled" in type(embedding).__name__
        )
        if held is not None and known:
            model.set_input_embeddings(GroupedEmbedding(held, self.dtype, scale))
            return True
        return isinstance(model.get_output_embeddings(), GroupedHead)

    def _plain(self, name: str) -> Tensor:
        return self.source.values(name).to(self.device, self.dtype)


def filler(how: str, device: torch.device, dtype: torch.dtype) -> Fill:
    """Return what fills a skeleton from a source: int4, int8 or fp8 on a device."""
    return lambda model, source: Filler(source, how, device, dtype).fill(model)


class Drawn:
    """Random weights for a skeleton, made on the device one by one: a source for `Filler`."""

    def __init__(self, model: Any, device: torch.device, dtype: torch.dtype, seed: int = 0) -> None:
        self.shapes = {name: weight.shape for name, weight in model.named_parameters()}
        self.device, self.dtype = device, dtype
        self.generator = torch.Generator(device).manual_seed(seed)

    def has(self, name: str) -> bool:
        """Say whether there is such a weight."""
        return name in self.shapes

    def values(self, name: str) -> Tensor:
        """Draw a weight; norms are ones and biases zeros, as in a new model."""
        shape = self.shapes[name]
        if len(shape) == 1:
            return torch.full(shape, float("norm" in name), dtype=self.dtype, device=self.device)
        drawn = torch.empty(shape, dtype=self.dtype, device=self.device)
        return drawn.normal_(0, 0.02, generator=self.generator)

    def blocks(self, name: str) -> None:
        """Nothing is packed beforehand."""
