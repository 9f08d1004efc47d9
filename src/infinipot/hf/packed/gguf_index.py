"""What a GGUF file has and where, written beside its tokenizer: reading the file's own header takes seconds.

An index may be an older one, another file's or a stranger's: it says by what it knows its file, and what
cannot be right in it is refused, since memory is read where it points to.
"""

import hashlib
import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor

from infinipot.errors import ModelError, foreign
from infinipot.hf.packed import ggml
from infinipot.hf.packed.blocks import Blocks, block_size, format_name, row_bytes, slices, unpacked

_FLOATS = {0: torch.float32, 1: torch.float16, 30: torch.bfloat16}


@dataclass(frozen=True)
class Place:
    """Where a tensor lies in a GGUF file; `shape` is the tensor's in torch's order."""

    name: str
    kind: int
    shape: tuple[int, ...]
    offset: int
    size: int

    @property
    def packable(self) -> bool:
        """Whether the tensor can stay as it is."""
        return self.kind in ggml.UNPACK and len(self.shape) == 2

    @property
    def sound(self) -> bool:
        """Whether the size is that of the shape: an index may come from anyone."""
        *rows, width = self.shape
        whole = min(self.shape) > 0 and width % block_size(self.kind)[0] == 0
        return whole and self.offset >= 0 and self.size == math.prod(rows) * row_bytes(self.kind, width)

    def bytes(self, file: Tensor) -> Tensor:
        """Return the tensor's bytes, a row each where there are rows."""
        found = file[self.offset : self.offset + self.size]
        return found.view(self.shape[0], -1) if len(self.shape) == 2 else found

    def blocks(self, file: Tensor) -> Blocks:
        """Return the tensor as it is."""
        return Blocks(self.bytes(file), self.kind, self.shape[1])

    def values(self, file: Tensor) -> Tensor:
        """Return the tensor unpacked to float32."""
        data = self.bytes(file)
        if self.packable:
            return unpacked(self.blocks(file))
        if self.kind in _FLOATS:
            return data.clone().reshape(-1).view(_FLOATS[self.kind]).float().view(self.shape)
        from gguf import GGMLQuantizationType, dequantize

        return torch.from_numpy(dequantize(data.numpy(), GGMLQuantizationType(self.kind))).view(self.shape)


@dataclass(frozen=True)
class Index:
    """What is in a GGUF file and where, and the names its tensors have in the model."""

    FILE: ClassVar = "tensors.json"
    architecture: str
    places: tuple[Place, ...]
    names: dict[str, str] = field(default_factory=dict)
    header: str = ""  # of the file, see `header_of`

    def header_of(self, gguf: Path) -> str:
        """Return a SHA-256 of what a file has before its tensors: everything that describes it."""
        end = min((place.offset for place in self.places), default=0)
        return hashlib.sha256(mapped(gguf)[:end].numpy().data).hexdigest()

    @property
    def parameters(self) -> int:
        """The number of weights."""
        return sum(int(np.prod(place.shape)) for place in self.places)

    @property
    def formats(self) -> list[str]:
        """The formats of its matrices, by name."""
        return sorted({format_name(place.kind) for place in self.places if len(place.shape) > 1})

    @property
    def packed_bytes(self) -> int:
        """Memory of the weights if they stay in their blocks; what cannot is unpacked to float32."""
        return sum(one.size if one.packable else 4 * int(np.prod(one.shape)) for one in self.places)

    def check(self, gguf: Path) -> None:
        """Refuse a file with a block whose scale is not a number: unpack everything once."""
        file = mapped(gguf)
        for place in self.places:
            parts = slices(place.blocks(file)) if place.packable else [(0, place.values(file))]
            if not all(part.isfinite().all() for _, part in parts):
                problem = f"{gguf} is damaged: {place.name} has values that are no numbers"
                raise ModelError(problem, remedy="download it again")

    def save(self, folder: Path) -> None:
        """Write the index: gguf's reader needs seconds for a large vocabulary."""
        rows = [[one.name, one.kind, list(one.shape), one.offset, one.size] for one in self.places]
        told = {"architecture": self.architecture, "places": rows, "names": self.names}
        told["header"] = self.header
        (folder / self.FILE).write_text(json.dumps(told) + "\n", "utf-8")

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Read an index; one that cannot be a file's is a ModelError."""
        with foreign(f"{folder / cls.FILE} is damaged", "remove it, and it is made anew"):
            told = json.loads((folder / cls.FILE).read_text("utf-8"))
            found = [Place(name, kind, tuple(shape), *where) for name, kind, shape, *where in told["places"]]
            if wrong := [place.name for place in found if not place.sound]:
                raise ValueError(f"the place of {wrong[0]} cannot be right")
            return cls(told["architecture"], tuple(found), told["names"], told.get("header", ""))


def places(reader: Any) -> Iterator[Place]:
    """Yield where the tensors lie, from gguf's own reader."""
    for tensor in reader.tensors:
        shape = tuple(int(size) for size in reversed(tensor.shape))
        yield Place(tensor.name, int(tensor.tensor_type), shape, int(tensor.data_offset), int(tensor.n_bytes))


def mapped(path: Path) -> Tensor:
    """Return the file's bytes; what is not looked at is not read."""
    return torch.from_numpy(np.memmap(path, dtype=np.uint8, mode="c"))  # "c": nothing is ever written back
