"""A weight's rows laid out anew, some beside each other, as ggml multiplies few tokens by them fastest.

ggml says for which formats, shapes and processors it has such a layout. The copy takes the place of a mapped
file's pages: they are given back to the system, and read again where a chunk is multiplied.
"""

import ctypes
import mmap
from ctypes import c_void_p
from functools import cache

import torch
from torch import Tensor

from infinipot.hf.packed.ggml import Ggml, Graph, floats, ramp

NAMED = b"ggml_backend_dev_get_extra_bufts"  # the function that knows the processor's own kinds of memory
TRIED, BLOCK = 12, 144  # Q4_K, which every such processor has a layout for; bytes of 256 values


class Laid:
    """Memory of ggml's own that a weight's rows were laid out anew in."""

    def __init__(self, ggml: Ggml, kind: int, size: int) -> None:
        self._ggml, self.buffer = ggml, ggml["ggml_backend_buft_alloc_buffer"](kind, size)
        if not self.buffer:
            raise MemoryError("ggml had no memory for a weight")
        self.at: int = ggml["ggml_backend_buffer_get_base"](self.buffer)

    def __del__(self) -> None:
        """Give the memory back."""
        if getattr(self, "buffer", None):
            self._ggml["ggml_backend_buffer_free"](self.buffer)


def interleaved(kernels: Ggml, kind: int, shape: tuple[int, int], data: Tensor) -> Laid | None:
    """Return rows of blocks in the fastest layout, or None where theirs is the one."""
    return _laid(kernels, kind, shape, data) if _right(kernels) else None


def forget(data: Tensor) -> None:
    """Give a mapped file's pages back; whoever looks at them reads them again. Nothing else may lie there."""
    if not hasattr(mmap, "MADV_DONTNEED"):
        return
    first = -(-data.data_ptr() // mmap.PAGESIZE) * mmap.PAGESIZE
    if (size := data.data_ptr() + data.nbytes - first) > 0:
        ctypes.CDLL(None).madvise(c_void_p(first), ctypes.c_size_t(size), mmap.MADV_DONTNEED)


def _laid(kernels: Ggml, kind: int, shape: tuple[int, int], data: Tensor) -> Laid | None:
    memory = _memory(kernels)
    if not memory:
        return None
    try:
        laid, graph = Laid(kernels, memory, data.nbytes), Graph(kernels)
    except MemoryError:
        return None  # the file's own pages serve
    made = graph.weight(kind, shape, data, laid)
    product = kernels["ggml_mul_mat"](graph.context, made, graph.input(floats(1, shape[1])))
    if not kernels["ggml_backend_dev_supports_op"](_device(kernels), product):
        return None
    kernels["ggml_backend_tensor_set"](made, data.data_ptr(), 0, data.nbytes)
    return laid


def _device(kernels: Ggml) -> int:
    return int(kernels["ggml_backend_reg_dev_get"](kernels["ggml_backend_cpu_reg"](), 0))


@cache
def _memory(kernels: Ggml) -> int:
    """Return ggml's kind of memory whose tensors it lays out anew, or 0."""
    if not hasattr(mmap, "MADV_DONTNEED"):
        return 0  # everything would be held twice
    registry = kernels["ggml_backend_cpu_reg"]()
    found = kernels["ggml_backend_reg_get_proc_address"](registry, NAMED)
    if not found:
        return 0
    kinds, at = ctypes.CFUNCTYPE(ctypes.POINTER(c_void_p), c_void_p)(found)(_device(kernels)), 0
    while kinds[at]:
        if kernels["ggml_backend_buft_name"](kinds[at]) == b"CPU_REPACK":
            return int(kinds[at] or 0)
        at += 1
    return 0


@cache
def _right(kernels: Ggml) -> bool:
    """Try a small product against that of the same blocks as they are."""
    weight, x = ramp(-1, 1, 64 * 256).sin().view(64, 256), ramp(-1, 1, 1024).view(4, 256)
    blocks = torch.zeros(64, BLOCK, dtype=torch.uint8, device="cpu")
    kernels.pack(weight, TRIED, blocks)
    if (laid := _laid(kernels, TRIED, (64, 256), blocks)) is None:
        return False
    outs = floats(4, 64), floats(4, 64)
    for out, one in zip(outs, (None, laid), strict=True):
        graph = Graph(kernels)
        graph.apply("ggml_mul_mat", graph.weight(TRIED, (64, 256), blocks, one), graph.input(x), out=out)
        with kernels.lock:
            graph.run()
    return torch.allclose(*outs, rtol=1e-3, atol=1e-3)
