"""One weight in few bits: rows of blocks, each of 32 or 256 values and their scales, as in GGUF files."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from threading import RLock

import torch
from torch import Tensor

from infinipot.errors import ModelError
from infinipot.hf.packed import ggml
from infinipot.hf.packed.ggml import Ggml, Graph
from infinipot.hf.packed.interleaved import Laid, forget, interleaved

SLICE = 4_000_000  # weights that are unpacked at a time: 16 MB
ALIGNED = 64  # rows at a time are a multiple of this: a product of rows that are not takes a third longer
WIDE, NARROW = 12, 3  # Q4_K wants 256 columns a block; Q4_1, 32, takes what is left
TURN = RLock()  # whoever computes on packed weights holds it: all models and threads share their buffers
_scratch: list[Tensor] = []  # the buffer they are unpacked into, used again and again


@dataclass(frozen=True)
class Blocks:
    """A weight [out, in] whose rows are blocks of one format; `data` [out, bytes] may be a mapped file."""

    data: Tensor
    kind: int  # ggml's number of the format
    width: int
    mapped: bool = False  # whether `data` lies in a mapped file, which can be read again
    laid: Laid | None = None  # the same rows for few tokens: the file's pages are then given back after use

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of the weight."""
        return len(self.data), self.width

    def rows(self, places: Tensor) -> Tensor:
        """The float32 values [n, in] of some rows."""
        data = self.data.index_select(0, places)  # whole rows: `data[places]` goes byte by byte
        return unpacked(Blocks(data, self.kind, self.width))

    def span(self, first: int, last: int) -> "Blocks":
        """The rows from first up to last, which are not copied; to be unpacked alone."""
        return replace(self, data=self.data[first:last])

    def columns(self, first: int, last: int) -> "Blocks":
        """The columns from first up to last, both at the edge of a block."""
        values, size = block_size(self.kind)
        data = self.data[:, first // values * size : last // values * size].contiguous()
        self.done()
        return Blocks(data, self.kind, last - first)

    def tensor(self, graph: Graph) -> int:
        """The weight in a graph, as its products are fastest."""
        return graph.weight(self.kind, self.shape, self.data, self.laid)

    def done(self) -> None:
        """Hold no pages of a file that is not needed for a token."""
        if self.laid is not None:
            forget(self.data)

    def quicker(self) -> "Blocks":
        """Return the same, whose mapped rows are laid out anew for few tokens where that is faster."""
        found = ggml.find()
        if not self.mapped or not isinstance(found, Ggml):
            return self
        made = replace(self, laid=interleaved(found, self.kind, self.shape, self.data))
        made.done()
        return made


def unpacked(blocks: Blocks, out: Tensor | None = None) -> Tensor:
    """All values of a weight in float32, exactly."""
    out = ggml.floats(*blocks.shape) if out is None else out
    found = ggml.find()
    if isinstance(found, Ggml):
        found.unpack(blocks.data.contiguous(), blocks.kind, out)
    else:
        out.copy_(slowly_unpacked(blocks))
    blocks.done()
    return out


def slices(blocks: Blocks, most: int = 0) -> Iterator[tuple[int, Tensor]]:
    """Yield rows in float32, some at a time: where they begin, and values that are valid until the next."""
    count = max(1, (most or SLICE) // blocks.width)
    count -= count % ALIGNED if count > ALIGNED else 0
    for start in range(0, len(blocks.data), count):
        yield start, scratched(blocks.span(start, start + count))


def scratched(blocks: Blocks) -> Tensor:
    """All values in float32, in a buffer that is used again: valid until the next call."""
    rows, width = blocks.shape
    if not _scratch or _scratch[0].numel() < rows * width:
        _scratch[:] = [ggml.floats(rows * width)]
    return unpacked(blocks, _scratch[0][: rows * width].view(rows, width))


def slowly_unpacked(blocks: Blocks) -> Tensor:
    """The same by the gguf package, which is the definition of the formats in Python."""
    from gguf import GGMLQuantizationType, dequantize

    return torch.from_numpy(dequantize(blocks.data.numpy(), GGMLQuantizationType(blocks.kind)))


def fitting(kind: int, width: int) -> int | None:
    """Return the format that rows so wide are rounded to where this one is asked for, or None."""
    kind = NARROW if kind == WIDE and width % block_size(WIDE)[0] else kind
    return None if width % block_size(kind)[0] else kind


def packed(weight: Tensor, kind: int) -> Blocks:
    """Round a weight [out, in] to a format, of which a row is whole blocks."""
    found = ggml.find()
    assert isinstance(found, Ggml)
    if weight.shape[1] % block_size(kind)[0]:
        problem = f"a weight of {weight.shape[1]} columns is no whole blocks of {format_name(kind)}"
        raise ModelError(problem, remedy="use `weights` full")
    data = torch.empty(len(weight), row_bytes(kind, weight.shape[1]), dtype=torch.uint8, device="cpu")
    found.pack(weight.float().contiguous(), kind, data)
    return Blocks(data, kind, weight.shape[1])


@cache
def block_size(kind: int) -> tuple[int, int]:
    """Values and bytes of one block."""
    from gguf import GGML_QUANT_SIZES, GGMLQuantizationType

    values, size = GGML_QUANT_SIZES[GGMLQuantizationType(kind)]
    return int(values), int(size)


def row_bytes(kind: int, width: int) -> int:
    """Bytes of one row."""
    values, size = block_size(kind)
    return width // values * size


def format_name(kind: int) -> str:
    """The name of a format, of those too that cannot be held."""
    from gguf import GGMLQuantizationType

    return str(GGMLQuantizationType(kind).name)
