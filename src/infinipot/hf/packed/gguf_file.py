"""The tensors of a GGUF file by the names they have in a model, in their blocks or unpacked.

Names, and what llama.cpp did to the values, come from transformers' own tables. The file is mapped into
memory, so a weight that stays packed is not copied unless its rows change places. Whatever else those tables
do is done on unpacked values.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from infinipot.errors import ModelError
from infinipot.hf.packed import ggml
from infinipot.hf.packed.blocks import Blocks, block_size, fitting, packed, unpacked
from infinipot.hf.packed.gguf_index import Index, Place, mapped
from infinipot.hf.packed.interleaved import forget


def indexed(model: Any, index: Index) -> Index:
    """Return the index with the names of a model's weights."""
    from transformers.modeling_gguf_pytorch_utils import get_gguf_hf_weights_map

    return replace(index, names=get_gguf_hf_weights_map(model, _processor(model, index)))


@dataclass(frozen=True)
class Weights:
    """The file's tensors by the names they have in the model; a source for `load.fill`."""

    file: Tensor
    found: dict[str, tuple[Place, Any]]  # and what is done: nothing, an order of rows, or a function
    rounded: int = 0  # the format that matrices of floats are rounded to

    @classmethod
    def of(cls, model: Any, path: Path, index: Index, rounded: int) -> Self:
        """Find the file's tensors for a model."""
        file = mapped(path)
        if any(one.offset + one.size > len(file) for one in index.places):
            raise ModelError(f"{path} is cut short", remedy="download it again")
        processor, found = _processor(model, index), {}
        for place in index.places:
            change, name = _change(processor, place, index.names)
            if name in index.names:
                found[index.names[name]] = place, change
        return cls(file, found, rounded)

    def has(self, name: str) -> bool:
        """Say whether the file has such a weight."""
        return name in self.found

    def blocks(self, name: str) -> Blocks | None:
        """Return a weight as blocks, where it can stay so or is to be rounded."""
        place, change = self.found[name]
        if place.packable and not callable(change):
            there = place.bytes(self.file)
            data = ggml.aligned(there if change is None else there[change])
            mapped = data.data_ptr() == there.data_ptr()
            return Blocks(data, place.kind, place.shape[1], mapped)
        if self.rounded and len(place.shape) == 2 and (kind := fitting(self.rounded, place.shape[1])):
            return packed(self.values(name), kind)
        return None

    def values(self, name: str) -> Tensor:
        """Return a weight in float32."""
        place, change = self.found[name]
        values = place.values(self.file)
        if callable(change):
            return torch.from_numpy(np.ascontiguousarray(change(values.numpy())))
        return values if change is None else values[change]

    def samples(self, names: Iterable[str]) -> Iterator[tuple[str, Any]]:
        """Yield what a fingerprint is taken of, for the plain model's names."""
        tied = next((name for name in self.found if name.endswith("embed_tokens.weight")), "")
        for name in names:
            place, change = self.found[name if name in self.found else tied]
            yield name, _Sample(self, name if name in self.found else tied, place.shape, change)


@dataclass(frozen=True)
class _Sample:
    """A weight of which only a few values are unpacked."""

    weights: Weights
    name: str
    shape: tuple[int, ...]
    change: Any

    def at(self, spots: Tensor) -> Tensor:
        """Return the values at places of the flattened weight, in float16: pots were first made with that."""
        place, _ = self.weights.found[self.name]
        if not place.packable or callable(self.change):
            return self.weights.values(self.name).reshape(-1)[spots].half()
        row, column = spots // place.shape[1], spots % place.shape[1]
        row, values = row if self.change is None else self.change[row], block_size(place.kind)[0]
        whole = place.bytes(self.weights.file).view(place.shape[0], place.shape[1] // values, -1)
        found = Blocks(whole[row, column // values], place.kind, values)  # a block for each value, no more
        forget(whole)
        return unpacked(found).gather(1, (column % values)[:, None])[:, 0].half()


def _processor(model: Any, index: Index) -> Any:
    from transformers import modeling_gguf_pytorch_utils as tables

    return tables.TENSOR_PROCESSORS.get(index.architecture, tables.TensorProcessor)(
        config=model.config.to_dict()
    )


def _change(processor: Any, place: Place, names: dict[str, str]) -> tuple[Any, str]:
    """What is done to a tensor, and its name in the table."""

    def process(values: Any) -> Any:
        told = {"name": place.name, "tensor_key_mapping": names, "parsed_parameters": {"tensors": {}}}
        return processor.process(values, **told)

    rows = place.shape[0]
    result = process(np.arange(rows, dtype=np.float64).reshape(rows, *(1 for _ in place.shape[1:])))
    if result.weights is None:
        raise ModelError(f"the tensor {place.name} is laid out in a way that is not known here")
    order = torch.from_numpy(np.ascontiguousarray(result.weights)).reshape(-1)
    plain = torch.arange(rows, device="cpu")
    if torch.equal(order, plain.double()):
        return None, result.name
    if torch.equal(order.sort().values, plain.double()):
        return order.long(), result.name
    return (lambda values: process(values).weights), result.name
