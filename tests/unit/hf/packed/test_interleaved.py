from __future__ import annotations

import ctypes
import mmap
from pathlib import Path
from typing import Any

import pytest
import torch

from gguf_oracle import slowly
from infinipot.hf.packed import ggml, interleaved
from infinipot.hf.packed.blocks import Blocks, packed, unpacked
from infinipot.hf.packed.gguf_index import mapped
from infinipot.hf.packed.modules import PackedLinear, PackedMlp, Shared

pytestmark = pytest.mark.skipif(isinstance(ggml.find(), str), reason=f"no ggml: {ggml.find()}")
FORMATS = sorted(ggml.UNPACK)
ROWS, WIDTH = 96, 512
Q4_K = 12


def filed(folder: Path, kind: int, shift: int = 0, rows: int = ROWS) -> Blocks:
    """A weight that lies in a mapped file, alone on its pages where `shift` is 0."""
    weight = torch.randn(rows, WIDTH, generator=torch.Generator().manual_seed(kind))
    data, path = packed(weight, kind).data, folder / f"{kind}.bin"
    path.write_bytes(bytes(shift) + data.numpy().tobytes() + b"end")
    there = mapped(path)[shift : shift + data.nbytes].view(rows, -1)
    return Blocks(there, kind, WIDTH, mapped=True)


def laid_out() -> bool:
    """Whether this machine's ggml has another layout for Q4_K."""
    found = ggml.find()
    return isinstance(found, ggml.Ggml) and bool(interleaved._memory(found)) and interleaved._right(found)


@pytest.mark.parametrize("kind", FORMATS, ids=lambda kind: ggml.UNPACK[kind])
@pytest.mark.parametrize("rows", [1, 2, 3, 16])
def test_products_in_the_faster_layout_are_those_of_the_blocks(kind: int, rows: int, tmp_path: Path) -> None:
    plain = filed(tmp_path, kind)
    quick = plain.quicker()
    x = torch.randn(rows, WIDTH, generator=torch.Generator().manual_seed(rows))
    found, wanted = (PackedLinear(Shared([one], str(one.laid)), 0, None)(x).clone() for one in (quick, plain))
    assert torch.allclose(found, wanted, rtol=1e-4, atol=1e-4 * float(wanted.abs().max()))


@pytest.mark.skipif(not laid_out(), reason="ggml has one layout here")
def test_the_layout_is_another_and_the_file_is_read_for_everything_else(tmp_path: Path) -> None:
    plain = filed(tmp_path, Q4_K, shift=64)
    before = unpacked(plain)
    quick = plain.quicker()
    assert quick.laid is not None
    held = torch.frombuffer(
        (ctypes.c_char * plain.data.nbytes).from_address(quick.laid.at), dtype=torch.uint8
    )
    assert not torch.equal(held, plain.data.reshape(-1))
    assert torch.equal(unpacked(quick), before)
    assert torch.equal(unpacked(quick.span(8, 40)), before[8:40])
    assert torch.equal(unpacked(quick.columns(256, 512)), before[:, 256:])
    assert torch.equal(quick.rows(torch.tensor([5, 90])), before[[5, 90]])


@pytest.mark.skipif(not laid_out(), reason="ggml has one layout here")
@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize(("rows", "by_ggml"), [(65, True), (150, True), (192, True), (193, False)])
def test_more_tokens_go_to_ggml_where_rows_are_laid_out_for_it(
    rows: int, by_ggml: bool, gated: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick, built = filed(tmp_path, Q4_K, rows=256).quicker(), list[int]()
    made = _gated(quick) if gated else PackedLinear(Shared([quick], "some"), 0, None)
    of = made if isinstance(made, PackedMlp) else made.shared
    graph = of._graph
    monkeypatch.setattr(of, "_graph", lambda size, kernels: built.append(size) or graph(size, kernels))
    x = torch.randn(rows, WIDTH)
    wanted = made.inner(x) if isinstance(made, PackedMlp) else slowly(made, x)
    for rounds, most, calls in (
        (torch.int8, 0.03, by_ggml),
        (torch.bfloat16, 0.02, False),
        (None, 1e-5, False),
    ):
        of.rounds = rounds
        built.clear()
        of._graphs.clear()
        assert (made(x) - wanted).norm() < most * wanted.norm(), rounds
        assert built == [-(-rows // 32) * 32] * calls, rounds  # else nothing is rounded in blocks of ggml's


class _Plain(torch.nn.Module):
    """The obvious twin of a gated module of one weight and its transpose."""

    def __init__(self, weight: torch.Tensor, down: torch.Tensor) -> None:
        super().__init__()
        self.weight, self.down = weight, down

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        wide = torch.nn.functional.linear(x, self.weight)
        return torch.nn.functional.linear(torch.nn.functional.silu(wide) * wide, self.down)


def _gated(weight: Blocks) -> PackedMlp:
    down = packed(torch.randn(WIDTH, 256, generator=torch.Generator().manual_seed(1)), Q4_K)
    return PackedMlp(_Plain(unpacked(weight), unpacked(down)), weight, weight, down)


def test_only_rows_of_a_mapped_file_are_laid_out_anew() -> None:
    one = packed(torch.randn(ROWS, WIDTH), Q4_K)
    assert one.quicker() is one


def resident(data: torch.Tensor) -> int:
    """The bytes of the mapping around a tensor that are in memory."""
    text = Path("/proc/self/smaps").read_text()
    for part in text.split("VmFlags"):
        for line in part.splitlines():
            first, _, rest = line.partition("-")
            try:
                low, high = int(first, 16), int(rest.split(" ")[0], 16)
            except ValueError:
                continue
            if low <= data.data_ptr() < high:
                return int(part.split("Rss:")[1].split()[0]) * 1024
    raise AssertionError("no such mapping")


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="no /proc to ask")
def test_pages_of_a_file_are_given_back_and_read_again(tmp_path: Path) -> None:
    path = tmp_path / "pages.bin"
    path.write_bytes(bytes(range(256)) * (64 * mmap.PAGESIZE // 256))
    data = mapped(path)
    wanted = data.clone()
    assert resident(data) >= data.nbytes
    interleaved.forget(data[10:-10])  # the first and the last page have something else too
    assert resident(data) <= 2 * mmap.PAGESIZE
    assert torch.equal(data, wanted)


def test_without_a_word_to_give_pages_back_nothing_is_held_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(mmap, "MADV_DONTNEED", raising=False)
    interleaved._memory.cache_clear()
    interleaved._right.cache_clear()
    try:
        one = filed(tmp_path, Q4_K)
        assert one.quicker().laid is None
        interleaved.forget(one.data)
    finally:
        monkeypatch.undo()
        interleaved._memory.cache_clear()
        interleaved._right.cache_clear()


@pytest.mark.skipif(not laid_out(), reason="ggml has one layout here")
def test_a_layout_that_computes_something_else_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lay = interleaved._laid

    def wrong(kernels: ggml.Ggml, kind: int, shape: tuple[int, int], data: torch.Tensor) -> Any:
        return lay(kernels, kind, shape, torch.zeros_like(data))

    monkeypatch.setattr(interleaved, "_laid", wrong)
    interleaved._right.cache_clear()
    try:
        assert filed(tmp_path, Q4_K).quicker().laid is None
    finally:
        interleaved._right.cache_clear()
