"""ggml's kernels for a CPU, called by ctypes from the libraries that the package pywhispercpp carries.

ggml (llama.cpp's tensor library, MIT) multiplies blocks of 2 to 8 bits as they lie in a GGUF file; that
package is the one on PyPI with its shared libraries for Linux, macOS and Windows. Only functions of ggml's
public interface are used, with opaque pointers. A failed assertion inside ggml ends the process, so
everything it asserts is checked here or by the caller first. Does not know what a model is.
"""

import ctypes
import platform
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from ctypes import c_bool, c_char_p, c_float, c_int, c_int64, c_size_t, c_void_p
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    from infinipot.hf.packed.interleaved import Laid

PACKAGE = "pywhispercpp"
ALIGNMENT = 32  # of every pointer
KINDS = {torch.float32: 0, torch.float16: 1, torch.int32: 26, torch.int64: 27}  # ggml's numbers of types
NODES = 32  # of a graph
WARNINGS = (3, 4)  # ggml's levels of what it says
WORTH = 30_000  # multiplications an operation that are worth another thread, where waiting ones sleep soon
NODE_BYTES = 2048  # of a node and the tensors it needs, without their data
UNPACK = {  # the formats, by ggml's number, and what their functions are called by
    2: "q4_0",
    3: "q4_1",
    6: "q5_0",
    7: "q5_1",
    8: "q8_0",
    10: "q2_K",
    11: "q3_K",
    12: "q4_K",
    13: "q5_K",
    14: "q6_K",
    20: "iq4_nl",
    23: "iq4_xs",
}


def floats(*shape: int) -> Tensor:
    """Return room for float32 values on the CPU: kernels take pointers, whatever torch's defaults are."""
    return torch.empty(shape, dtype=torch.float32, device="cpu")


def ramp(first: float, last: float, count: int) -> Tensor:
    """Return evenly spaced float32 values on the CPU, to try a computation with."""
    return torch.linspace(first, last, count, dtype=torch.float32, device="cpu")


class _Params(ctypes.Structure):
    _fields_ = (("size", c_size_t), ("memory", c_void_p), ("no_alloc", c_bool))


_SIGNATURES: dict[str, tuple[Any, ...]] = {  # the result, then the arguments
    "ggml_init": (c_void_p, _Params),
    "ggml_free": (None, c_void_p),
    "ggml_new_tensor_2d": (c_void_p, c_void_p, c_int, c_int64, c_int64),
    "ggml_new_tensor_3d": (c_void_p, c_void_p, c_int, *(c_int64,) * 3),
    "ggml_view_3d": (c_void_p, c_void_p, c_void_p, *(c_int64,) * 3, *(c_size_t,) * 3),
    "ggml_set_rows": (c_void_p, *(c_void_p,) * 4),
    "ggml_flash_attn_ext": (c_void_p, *(c_void_p,) * 5, *(c_float,) * 3),
    "ggml_custom_4d": (c_void_p, c_void_p, c_int, *(c_int64,) * 4, *(c_void_p, c_int) * 2, c_void_p),
    "ggml_mul_mat": (c_void_p, c_void_p, c_void_p, c_void_p),
    "ggml_mul": (c_void_p, c_void_p, c_void_p, c_void_p),
    "ggml_add": (c_void_p, c_void_p, c_void_p, c_void_p),
    "ggml_rms_norm": (c_void_p, c_void_p, c_void_p, c_float),
    "ggml_reshape_3d": (c_void_p, c_void_p, c_void_p, *(c_int64,) * 3),
    "ggml_rope_ext": (c_void_p, *(c_void_p,) * 4, *(c_int,) * 3, *(c_float,) * 6),
    "ggml_swiglu_split": (c_void_p, c_void_p, c_void_p, c_void_p),
    "ggml_new_graph_custom": (c_void_p, c_void_p, c_size_t, c_bool),
    "ggml_build_forward_expand": (None, c_void_p, c_void_p),
    "ggml_backend_cpu_init": (c_void_p,),
    "ggml_backend_cpu_set_n_threads": (None, c_void_p, c_int),
    "ggml_backend_graph_compute": (c_int, c_void_p, c_void_p),
    "ggml_backend_cpu_buffer_from_ptr": (c_void_p, c_void_p, c_size_t),
    "ggml_backend_buffer_free": (None, c_void_p),
    "ggml_backend_tensor_alloc": (c_int, c_void_p, c_void_p, c_void_p),
    "ggml_backend_tensor_set": (None, c_void_p, c_void_p, c_size_t, c_size_t),
    "ggml_backend_cpu_reg": (c_void_p,),
    "ggml_backend_reg_dev_get": (c_void_p, c_void_p, c_size_t),
    "ggml_backend_reg_get_proc_address": (c_void_p, c_void_p, c_char_p),
    "ggml_backend_dev_supports_op": (c_bool, c_void_p, c_void_p),
    "ggml_backend_buft_name": (c_char_p, c_void_p),
    "ggml_backend_buft_alloc_buffer": (c_void_p, c_void_p, c_size_t),
    "ggml_backend_buffer_get_base": (c_void_p, c_void_p),
    "ggml_log_set": (None, c_void_p, c_void_p),
    "ggml_quantize_chunk": (c_size_t, c_int, c_void_p, c_void_p, *(c_int64,) * 3, c_void_p),
    **{f"dequantize_row_{name}": (None, c_void_p, c_void_p, c_int64) for name in UNPACK.values()},
}


def _say(level: int, text: bytes, _: int) -> None:
    if level in WARNINGS:
        sys.stderr.write(text.decode("utf-8", "replace"))


_LOG = ctypes.CFUNCTYPE(None, c_int, c_char_p, c_void_p)(_say)  # of what ggml says, the warnings


class Ggml:
    """The loaded libraries, one backend on the CPU, and the threads that unpack."""

    def __init__(self, files: Sequence[Path]) -> None:
        for one in (Path(torch.__file__).parent / "lib").glob("libgomp*"):  # one pool of threads for both
            ctypes.CDLL(str(one), mode=ctypes.RTLD_GLOBAL)
        opened = [ctypes.CDLL(str(file), mode=ctypes.RTLD_GLOBAL) for file in files]
        self._functions = {name: _bound(opened, name) for name in _SIGNATURES}
        self["ggml_log_set"](_LOG, None)
        self._backend = self["ggml_backend_cpu_init"]()
        self._threads = self._computing = 0  # torch's, and those of the last graph
        self._pool: ThreadPoolExecutor | None = None
        self.lock = Lock()  # one product at a time: a graph's buffers and the backend's are its own

    def __getitem__(self, name: str) -> Any:
        """A function of ggml's."""
        return self._functions[name]

    def compute(self, graph: int, most: int) -> None:
        """Run a graph, on as many threads as torch uses, but no more than `most`."""
        self._follow_torch()
        if (wanted := min(self._threads, most)) != self._computing:
            self["ggml_backend_cpu_set_n_threads"](self._backend, wanted)
            self._computing = wanted
        if self["ggml_backend_graph_compute"](self._backend, graph) != 0:
            raise MemoryError("ggml had no memory for a product")

    def unpack(self, blocks: Tensor, kind: int, out: Tensor) -> None:
        """Write the float32 values of whole rows of blocks [n, bytes] to out [n, k], exactly."""
        self._follow_torch()
        function, count = self[f"dequantize_row_{UNPACK[kind]}"], len(blocks)
        step = -(-count // self._threads)
        parts = [(blocks[at : at + step], out[at : at + step]) for at in range(0, count, step)]
        run = self._pool.map if self._pool and out.numel() > 100_000 else map
        for _ in run(lambda part: function(part[0].data_ptr(), part[1].data_ptr(), part[1].numel()), parts):
            pass

    def pack(self, weight: Tensor, kind: int, out: Tensor) -> None:
        """Round float32 rows [n, k] to blocks [n, bytes] of a format."""
        rows, width = weight.shape
        self["ggml_quantize_chunk"](kind, weight.data_ptr(), out.data_ptr(), 0, rows, width, None)

    def _follow_torch(self) -> None:
        if (wanted := torch.get_num_threads()) != self._threads:
            self._pool = ThreadPoolExecutor(wanted) if wanted > 1 else None
            self._threads = wanted


class Graph:
    """One computation, built once on buffers of its own and run again and again."""

    def __init__(self, ggml: Ggml, nodes: int = NODES) -> None:
        self._ggml = ggml
        self.context = ggml["ggml_init"](_Params(nodes * NODE_BYTES, None, True))
        self._graph = ggml["ggml_new_graph_custom"](self.context, nodes, False)
        self._held: list[Tensor | Laid] = []  # what the graph points to
        self._buffers: list[int] = []
        self._weights = self._operations = self._rows = 0

    def __del__(self) -> None:
        """Give back what ggml holds for it."""
        for buffer in getattr(self, "_buffers", ()):
            self._ggml["ggml_backend_buffer_free"](buffer)
        if hasattr(self, "context"):
            self._ggml["ggml_free"](self.context)

    def tensor(self, kind: int, shape: Sequence[int], data: Tensor) -> int:
        """Return a tensor [out, in] of this format on existing memory."""
        self._weights += shape[0] * shape[1]
        made: int = self._ggml["ggml_new_tensor_2d"](self.context, kind, shape[1], shape[0])
        return self._placed(made, data)

    def weight(self, kind: int, shape: Sequence[int], data: Tensor, laid: "Laid | None") -> int:
        """Return a weight's tensor, on rows that were laid out anew where there are such."""
        if laid is None:
            return self.tensor(kind, shape, data)
        self._weights += shape[0] * shape[1]
        made: int = self._ggml["ggml_new_tensor_2d"](self.context, kind, shape[1], shape[0])
        self._ggml["ggml_backend_tensor_alloc"](laid.buffer, made, laid.at)
        self._held.append(laid)
        return made

    def input(self, data: Tensor) -> int:
        """Return a tensor of floats, or of whole numbers, on existing memory [n, k]."""
        return self.tensor(KINDS[data.dtype], data.shape, data)

    def slots(self, data: Tensor) -> int:
        """Return a tensor of floats on memory [heads, n, k] that the caller keeps alive where it is."""
        kind, sizes = KINDS[data.dtype], reversed(data.shape)
        made: int = self._ggml["ggml_new_tensor_3d"](self.context, kind, *sizes)
        return self._placed(made, data, held=False)

    def first(self, made: int, data: Tensor, count: int) -> int:
        """Return the first rows of every head of `slots`."""
        heads, rows, width = data.shape
        steps = width * data.itemsize, rows * width * data.itemsize
        return int(self._ggml["ggml_view_3d"](self.context, made, width, count, heads, *steps, 0))

    def split(self, made: int, size: int, heads: int, rows: int) -> int:
        """Return a tensor [rows, heads size] as [rows, heads, size]."""
        return int(self._ggml["ggml_reshape_3d"](self.context, made, size, heads, rows))

    def apply(self, name: str, *inputs: float | None, out: Tensor | None) -> int:
        """Add an operation whose result is written to `out`; None where it lies in an input's memory."""
        self._operations += 1
        made: int = self._ggml[name](self.context, *inputs)
        if out is not None:
            self._rows = max(self._rows, len(out))
            self._placed(made, out)
        self._ggml["ggml_build_forward_expand"](self._graph, made)
        return made

    def _placed(self, made: int, data: Tensor, held: bool = True) -> int:
        if data.data_ptr() % ALIGNMENT or not data.is_contiguous():
            raise ValueError("ggml wants aligned, contiguous memory")
        at = data.data_ptr()
        buffer = self._ggml["ggml_backend_cpu_buffer_from_ptr"](at, max(data.nbytes, ALIGNMENT))
        self._ggml["ggml_backend_tensor_alloc"](buffer, made, at)
        self._buffers.append(buffer)
        self._held += [data] if held else []
        return made

    def run(self) -> None:
        """Compute; little work on few threads, which wait for each other after every operation."""
        self._ggml.compute(self._graph, max(1, self._weights * self._rows // (WORTH * self._operations)))


def aligned(data: Tensor) -> Tensor:
    """Return the same values in memory that ggml takes: a mapped file's may lie anywhere."""
    data = data.contiguous()
    return data.clone() if data.data_ptr() % ALIGNMENT else data


@cache
def find() -> Ggml | str:
    """Return the kernels, or why there are none on this machine."""
    best = torch.backends.cpu.get_cpu_capability()  # DEFAULT, AVX2 or AVX512: what torch may use
    if platform.machine().lower() in ("x86_64", "amd64") and not best.startswith("AVX"):
        return "this processor has no AVX2 instructions"
    try:
        files = [Path(str(file.locate())) for file in distribution(PACKAGE).files or ()]
        found = Ggml(_libraries(files))
    except PackageNotFoundError:
        return f"the package {PACKAGE} is not installed"
    except (OSError, AttributeError, StopIteration) as error:
        return f"the libraries of {PACKAGE} cannot be used here ({error or 'none for this system'})"
    return found if _right(found) else "ggml's products are not right on this machine"


def _libraries(files: list[Path]) -> list[Path]:
    """The two libraries; wheels carry them twice, and those that were repaired find each other."""
    named = [file for file in files if "ggml" in file.name]
    inner = [file for file in named if file.parent.name.endswith((".libs", ".dylibs"))] or named
    return [next(file for file in inner if part in file.name) for part in ("ggml-base", "ggml-cpu")]


def _bound(libraries: list[ctypes.CDLL], name: str) -> Any:
    library = next((one for one in libraries if hasattr(one, name)), None)
    if library is None:
        raise AttributeError(f"{name} is missing")
    function = getattr(library, name)
    function.restype, function.argtypes = _SIGNATURES[name][0], list(_SIGNATURES[name][1:])
    return function


def _right(ggml: Ggml) -> bool:
    """Try a small product against torch's own."""
    weight, x = ramp(-1, 1, 64 * 256).sin().view(64, 256), ramp(-1, 1, 512).view(2, 256)
    wide, out = torch.empty_like(weight), floats(2, 64)
    blocks = torch.zeros(64, 256 // 32 * 34, dtype=torch.uint8, device="cpu")
    ggml.pack(weight, 8, blocks)
    ggml.unpack(blocks, 8, wide)
    graph = Graph(ggml)
    graph.apply("ggml_mul_mat", graph.tensor(8, weight.shape, blocks), graph.input(x), out=out)
    graph.run()
    return bool((wide - weight).abs().max() < 0.01 and (out - x @ weight.T).abs().max() < 0.5)
