"""Compiled attention of one token, against the pot's own."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor, wait
from ctypes import CFUNCTYPE, c_int, c_void_p
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
import torch
from torch import Tensor

from infinipot.core.attention import LogitSpec, attend
from infinipot.engine import open_engine
from infinipot.hf.packed import ggml, whole
from infinipot.hf.packed.ggml import Ggml, Graph
from infinipot.hf.packed.modules import buffer
from toy_release import write_gguf

needs_ggml = pytest.mark.skipif(isinstance(ggml.find(), str), reason=f"no ggml: {ggml.find()}")

CASES = [  # slots, the size of queries, and by how much at most an output is off
    (1, 1.0, 2e-5),
    (15, 1.0, 2e-5),
    (16, 9.0, 2e-5),
    (65, 1.0, 2e-5),
    (2100, 1.0, 2e-5),
    # Scores, as powers of two, reach 203 here: float32 has steps of 1.5e-5 there, weights are off as much.
    # Processors sum in other orders: one term after the other, the worst of them, is off by 2.6e-5.
    (2100, 30.0, 5e-5),
]
SHAPES = [(16, 3, 1), (64, 3, 3), (80, 2, 1), (128, 2, 6), (256, 1, 4)]  # size, heads, queries of each


def tensors(size: int, heads: int, group: int, count: int, large: float = 1.0) -> list[Tensor]:
    """Queries, keys and values with nonsense beyond the last slot, an output, the last slot's number."""
    source = torch.Generator().manual_seed(count)
    queries = large * torch.randn(1, heads * group * size, generator=source)
    keys, values = (torch.randn(heads, count + 9, size, generator=source) for _ in range(2))
    keys[:, count:], values[:, count:] = 1e6, float("nan")
    return [queries, keys, values, torch.empty_like(queries), torch.tensor([[count - 1]])]


def slowly(queries: Tensor, keys: Tensor, values: Tensor, _: Tensor, last: Tensor) -> Tensor:
    seen = [one[None, :, : int(last) + 1].double() for one in (keys, values)]
    heads = queries.double().view(1, -1, 1, keys.shape[-1])
    return attend(heads, seen[0], seen[1], LogitSpec(keys.shape[-1] ** -0.5)).view(1, -1).float()


@pytest.mark.usefixtures("compiling")
@pytest.mark.parametrize("threads", [1, 2, 3, 70])
@pytest.mark.parametrize(("size", "heads", "group"), SHAPES)
def test_it_is_the_pots_on_any_number_of_threads(size: int, heads: int, group: int, threads: int) -> None:
    from infinipot.hf.packed import compiled  # needs llvmlite

    attention = compiled.attention(size, group, size**-0.5)
    node = CFUNCTYPE(None, c_void_p, c_int, c_int, c_void_p)
    for count, large, most in CASES:
        case = tensors(size, heads, group, count, large)
        given = attention.given(*case)
        for function in map(node, attention.functions):
            with ThreadPoolExecutor(threads) as pool:  # all shares at once, as ggml's threads have them
                calls = (
                    pool.submit(function, None, one, threads, given.data_ptr()) for one in range(threads)
                )
                wait([*calls])
        assert torch.allclose(case[3], slowly(*case), atol=most), count


@pytest.mark.usefixtures("compiling")
def test_threads_write_scores_of_their_own_alone() -> None:
    """Exponentials go 16 at a time, so a share must not end between them."""
    from infinipot.hf.packed import compiled

    attention, case = compiled.attention(64, 3, 0.125), tensors(64, 1, 3, 101)
    given, count = attention.given(*case), 3 * (110 + compiled.LANES)
    scores = buffer("attention", 0, 1, count)
    attend = CFUNCTYPE(None, c_void_p, c_int, c_int, c_void_p)(attention.functions[0])
    taken = torch.zeros_like(scores, dtype=torch.bool)
    for thread in range(3):
        scores.fill_(-7.0)
        attend(None, thread, 3, given.data_ptr())
        assert (scores != -7.0).any()
        assert not (taken & (scores != -7.0)).any()
        taken |= scores != -7.0


@pytest.mark.usefixtures("compiling")
@needs_ggml
def test_a_graph_calls_it_again_and_again() -> None:
    from infinipot.hf.packed import compiled

    kernels = ggml.find()
    assert isinstance(kernels, Ggml)
    case, graph = tensors(64, 3, 3, 100), Graph(kernels)
    compiled.attention(64, 3, 0.125).add(graph, *case)
    for last in (99, 40):
        case[4].fill_(last)
        graph.run()
        assert torch.allclose(case[3], slowly(*case), atol=1e-5)


HARDENED = """
import ctypes, platform
refused = platform.system() != "Linux" or ctypes.CDLL(None).prctl(65, 1, 0, 0, 0)  # PR_SET_MDWE, Linux 6.3
from infinipot.hf.packed import whole
print("no such rule here" if refused else whole.compiled(64, 3, 0.125))
"""


def test_where_memory_may_not_become_executable_attention_is_ggmls() -> None:
    """In a service with systemd's MemoryDenyWriteExecute, say: the process must not end at the first call."""
    pytest.importorskip("llvmlite", reason="no llvmlite")
    told = subprocess.run([sys.executable, "-c", HARDENED], capture_output=True, text=True, check=True).stdout
    if told.strip() == "no such rule here":
        pytest.skip("needs Linux 6.3 or later")
    assert f"{whole.SLOWER}: llvmlite cannot be used here (cannot allocate executable memory" in told


def with_llvmlite(there: ModuleType | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this be llvmlite; None: it is not installed."""
    monkeypatch.delitem(sys.modules, "infinipot.hf.packed.compiled", raising=False)
    monkeypatch.setitem(sys.modules, "llvmlite", there)


def old() -> ModuleType:
    """An llvmlite that lacks what we use."""
    there = ModuleType("llvmlite")
    vars(there).update(ir=SimpleNamespace(IntType=int), binding=SimpleNamespace())
    return there


@needs_ggml
def test_a_person_hears_why_an_llvmlite_that_is_installed_is_not_used(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_gguf(tmp_path / "tiny.gguf", "Q8_0")
    with_llvmlite(old(), monkeypatch)
    engine = open_engine(str(tmp_path / "tiny.gguf"), device="cpu")
    weights, why = engine.note.split("; ")
    assert weights == "weights stay Q8_0, as in the file"
    assert why.startswith(f"{whole.SLOWER}: llvmlite cannot be used here (")
    with_llvmlite(None, monkeypatch)
    assert open_engine(str(tmp_path / "tiny.gguf"), device="cpu").note == weights
