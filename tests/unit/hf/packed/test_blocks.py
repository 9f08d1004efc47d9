from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from gguf_oracle import slowly
from infinipot.errors import ModelError
from infinipot.hf.packed import ggml, modules
from infinipot.hf.packed.blocks import (
    NARROW,
    WIDE,
    Blocks,
    fitting,
    packed,
    row_bytes,
    scratched,
    slices,
    slowly_unpacked,
    unpacked,
)
from infinipot.hf.packed.modules import PackedEmbedding, PackedHead, PackedLinear, PackedMlp, Shared

pytestmark = pytest.mark.skipif(isinstance(ggml.find(), str), reason=f"no ggml: {ggml.find()}")
# What the gguf package cannot write (some formats) is written by ggml, what it can read is the definition.
FORMATS = sorted(ggml.UNPACK)
# Inputs are rounded to 8 bits a block: of 32 values, in the K formats 256.
ROUNDED = 0.02


def weight(rows: int = 96, width: int = 512) -> torch.Tensor:
    return torch.randn(rows, width, generator=torch.Generator().manual_seed(rows))


def error(found: torch.Tensor, wanted: torch.Tensor) -> float:
    return float((found - wanted).norm() / wanted.norm())


@pytest.mark.parametrize("kind", FORMATS, ids=lambda kind: ggml.UNPACK[kind])
def test_every_format_is_unpacked_exactly(kind: int) -> None:
    blocks = packed(weight(), kind)
    assert blocks.data.shape == (96, row_bytes(kind, 512))
    assert torch.equal(unpacked(blocks), slowly_unpacked(blocks))
    assert error(unpacked(blocks), weight()) < {10: 0.35, 11: 0.2}.get(kind, 0.12)


@pytest.mark.parametrize("kind", FORMATS, ids=lambda kind: ggml.UNPACK[kind])
@pytest.mark.parametrize("rows", [1, 3, modules.FEW, modules.FEW + 1, 70])
def test_products_are_those_of_the_unpacked_weight(kind: int, rows: int) -> None:
    linear = PackedLinear(Shared([packed(weight(), kind)], "a"), 0, bias=torch.linspace(-1, 1, 96))
    x = torch.randn(1, rows, 512, generator=torch.Generator().manual_seed(rows))
    found, wanted = linear(x), slowly(linear, x)
    assert found.shape == (1, rows, 96)
    if rows > modules.FEW:
        assert torch.allclose(found, wanted, atol=1e-4)
    else:
        assert error(found, wanted) < ROUNDED


def test_products_of_one_input_are_each_their_own_and_of_the_newest_input() -> None:
    weights = [packed(weight(96), 12), packed(weight(32), 14)]
    shared = Shared(weights, "a")
    first, second = (PackedLinear(shared, index, None) for index in (0, 1))
    for seed in range(3):
        x = torch.randn(2, 1, 512, generator=torch.Generator().manual_seed(seed))
        for module in (first, second):
            assert error(module(x), slowly(module, x)) < ROUNDED
    y = torch.randn(1, 1, 512)
    first(y)  # only one of the two asked; another input must not get its answer
    assert error(second(x), slowly(second, x)) < ROUNDED


def test_layers_share_buffers_and_modules_of_other_roles_do_not() -> None:
    x, blocks = torch.randn(1, 3, 512), packed(weight(), 8)
    attention, feed_forward, next_layer = (
        PackedLinear(Shared([blocks], role), 0, None) for role in ("attention", "mlp", "attention")
    )
    kept = attention(x)
    before = kept.clone()
    feed_forward(-x)  # a layer that adds both of them up still has the first
    assert torch.equal(kept, before)
    assert next_layer(-x).data_ptr() == kept.data_ptr()


def test_slices_are_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("infinipot.hf.packed.blocks.SLICE", 7 * 512)
    blocks = packed(weight(), 8)
    parts = [(start, part.clone()) for start, part in slices(blocks)]
    assert [start for start, _ in parts] == list(range(0, 96, 7))
    assert torch.equal(torch.cat([part for _, part in parts]), unpacked(blocks))
    x = torch.randn(40, 512)
    exact, found = x @ unpacked(blocks).T, modules.by_torch(x, blocks)
    assert torch.allclose(found, exact, atol=1e-4)
    assert 0.001 < float((modules.by_torch(x, blocks, torch.bfloat16) - exact).norm() / exact.norm()) < 0.01


def test_rows_at_a_time_are_aligned() -> None:
    starts = [start for start, _ in slices(packed(weight(300), 8), 200 * 512)]
    assert starts == [0, 192], "products whose rows are not aligned are slow"


@pytest.mark.parametrize("kind", [8, 12])
def test_columns_and_spans_are_parts_of_the_whole(kind: int) -> None:
    blocks = packed(weight(), kind)
    assert torch.equal(unpacked(blocks.columns(256, 512)), unpacked(blocks)[:, 256:])
    assert torch.equal(scratched(blocks.span(10, 40)), unpacked(blocks)[10:40])


def test_embedding_looks_up_rows() -> None:
    blocks = packed(weight(), 12)
    ids = torch.tensor([[5, 95, 5, 0]])
    assert torch.equal(PackedEmbedding(blocks)(ids), unpacked(blocks)[ids])
    assert torch.equal(PackedEmbedding(blocks, torch.tensor(3.0))(ids), 3 * unpacked(blocks)[ids])


def test_heads_likeliest_tokens_are_exact() -> None:
    blocks = packed(weight(200), 12)
    head, x = PackedHead(blocks, None), torch.randn(1, 2, 512)
    exact = x @ unpacked(blocks).T
    logits = head(x)
    best = exact.topk(20, dim=-1).indices
    assert torch.allclose(logits.gather(-1, best), exact.gather(-1, best), atol=1e-4)
    assert error(logits, exact) < ROUNDED
    assert torch.allclose(head(x.expand(1, 40, 2, 512)), exact.expand(1, 40, 2, 200), atol=1e-4)


def test_threads_follow_torch() -> None:
    blocks, before = packed(weight(), 12), torch.get_num_threads()
    linear, x = PackedLinear(Shared([blocks], "a"), 0, None), torch.randn(1, 512)
    try:
        found = []
        for count in (1, 2, 1):
            torch.set_num_threads(count)
            found.append(linear(x + 0))
        assert torch.equal(found[0], found[1])
        assert torch.equal(found[0], found[2])
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("kind", FORMATS, ids=lambda kind: ggml.UNPACK[kind])
def test_rows_that_are_no_whole_blocks_are_refused_not_written_beyond_their_end(kind: int) -> None:
    with pytest.raises(ModelError, match="a weight of 48 columns is no whole blocks of"):
        packed(weight(width=48), kind)
    assert fitting(kind, 48) is None


def test_narrow_rows_take_another_format() -> None:
    assert [fitting(WIDE, width) for width in (512, 576, 48)] == [WIDE, NARROW, None]
    assert fitting(8, 576) == 8


def test_memory_that_ggml_would_not_take_is_refused_not_fatal() -> None:
    kernels = ggml.find()
    assert isinstance(kernels, ggml.Ggml)
    data = packed(weight(), 8).data
    moved = torch.empty(data.numel() + 1, dtype=torch.uint8)[1:].view_as(data)
    with pytest.raises(ValueError, match="aligned"):
        ggml.Graph(kernels).tensor(8, (96, 512), moved)


def test_without_the_package_the_reason_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ggml, "PACKAGE", "not-there")
    ggml.find.cache_clear()
    try:
        assert ggml.find() == "the package not-there is not installed"
        blocks = Blocks(torch.zeros(4, 34, dtype=torch.uint8), 8, 32)
        assert torch.equal(unpacked(blocks), torch.zeros(4, 32))  # by the gguf package
        x = torch.ones(1, 32)
        assert torch.equal(PackedLinear(Shared([blocks], "a"), 0, None)(x), torch.zeros(1, 4))
        monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "DEFAULT")
        ggml.find.cache_clear()
        assert ggml.find() in (
            "this processor has no AVX2 instructions",
            "the package not-there is not installed",
        )
    finally:
        monkeypatch.undo()
        ggml.find.cache_clear()


@pytest.fixture
def other_defaults() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    torch.set_default_device("meta")  # what is made there has no values
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)
        torch.set_default_device(None)


def test_torchs_defaults_change_nothing(other_defaults: None) -> None:
    ggml.find.cache_clear()
    assert isinstance(ggml.find(), ggml.Ggml)
    plain = {"device": "cpu", "dtype": torch.float32}
    whole = torch.linspace(-1, 1, 600 * 512, **plain).sin().view(600, 512)  # more than other tests unpack
    blocks = packed(whole, 12)
    for found in (unpacked(blocks), scratched(blocks)):
        assert torch.equal(found, slowly_unpacked(blocks))
    linear = PackedLinear(Shared([blocks], "of defaults"), 0, None)
    gate, up, down = packed(whole[:256], 8), packed(whole[256:512], 8), packed(whole[:512, :256], 8)
    gated = PackedMlp(torch.nn.Identity(), gate, up, down)
    head = PackedHead(packed(whole, 8), None)
    for rows in (2, modules.FEW + 1):
        x = torch.linspace(-1, 1, rows * 512, **plain).view(rows, 512)
        assert error(linear(x), slowly(linear, x)) < ROUNDED
        wide = torch.nn.functional.silu(x @ slowly_unpacked(gate).T) * (x @ slowly_unpacked(up).T)
        assert error(gated(x), wide @ slowly_unpacked(down).T) < ROUNDED
        assert error(head(x), x @ slowly_unpacked(head.blocks).T) < ROUNDED
    logits = torch.linspace(0, 1, 64 * 128 * 3 + 17, **plain)
    assert modules.likeliest(logits, 1).tolist() == [len(logits) - 1]


@pytest.mark.parametrize("size", [40, 64 * 128, 64 * 128 * 3 + 17])
def test_the_likeliest_are_found_without_sorting_all(size: int) -> None:
    logits = torch.randn(2, 1, size, generator=torch.Generator().manual_seed(size))
    logits[0, 0, -1] = 100.0
    found = modules.likeliest(logits, 64)
    wanted = logits.topk(min(64, size), dim=-1).values
    assert torch.equal(logits.gather(-1, found), wanted)
