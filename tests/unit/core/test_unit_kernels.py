"""Kernels in Gluon against plain torch: their sources are run by torch, so no card is needed."""

from __future__ import annotations

import warnings
from types import ModuleType, SimpleNamespace

import pytest
import torch

pytest.importorskip("triton.experimental.gluon", reason="this Triton has no Gluon: its kernels are not used")

from gluon_in_torch import kernel
from infinipot.core.attention import attend_fixed
from infinipot.core.cuda import (
    kernels,
    product_kernels,
    rounded_attention_kernels,
    unit_attention_kernels,
    unit_product_kernels,
    units,
)
from infinipot.core.rope import Rotation
from infinipot.core.rounded_layer import RoundedLayer, buffer
from infinipot.hf.cuda.grouped import Grouped

SLOTS, HEADS, KV_HEADS, DIM = 150, 6, 2, 128


def relative(found: torch.Tensor, wanted: torch.Tensor) -> float:
    return float((found.double() - wanted.double()).norm() / wanted.double().norm())


def drawn(bits: int, rows: int, groups: int, group: int) -> Grouped:
    scale, least = torch.rand(groups, rows).half() * 0.1, None
    data = torch.randint(-127, 128, (groups, rows, group), dtype=torch.int8)
    if bits == 4:
        data, least = torch.randint(0, 256, (groups, rows, group // 2), dtype=torch.uint8), -5 * scale
    return Grouped(data, scale, least, group)


@pytest.mark.parametrize("ahead", [True, False])
@pytest.mark.parametrize("tiles", [1, 2])
@pytest.mark.parametrize(
    ("bits", "group", "groups", "kind"),
    [
        (4, 64, 21, torch.bfloat16), (4, 64, 9, torch.float16), (4, 32, 40, torch.bfloat16),
        (4, 128, 9, torch.float16), (8, 64, 13, torch.bfloat16), (8, 16, 20, torch.bfloat16),
    ],
)  # fmt: skip
def test_one_token_times_a_weight(bits, group, groups, kind, tiles, ahead, monkeypatch: pytest.MonkeyPatch):
    launched(monkeypatch, product_kernels, unit_product_kernels, "_one_token")
    monkeypatch.setattr(unit_product_kernels, "FORM", (2, tiles, ahead, None, 64))
    weight, x = drawn(bits, 37, groups, group), torch.randn(1, groups * group).to(kind)
    found = kernels.product(x, weight.data, weight.scale, weight.least, group)
    most = {torch.bfloat16: 4e-3, torch.float16: 1e-3}[kind]
    assert relative(found, x.double() @ weight.unpacked().double().T) < most


@pytest.mark.parametrize(("tiles", "columns"), [(1, 96), (4, 80)])
@pytest.mark.parametrize("adds", [True, False])
def test_one_token_through_a_gate(adds, tiles, columns, monkeypatch: pytest.MonkeyPatch):
    launched(monkeypatch, product_kernels, unit_product_kernels, "_one_token")
    monkeypatch.setattr(unit_product_kernels, "FORM", (2, tiles, False, None, 64))
    weight, x = drawn(4, columns, 9, 64), torch.randn(1, 9 * 64).bfloat16() / 64
    bias = torch.randn(columns).bfloat16() if adds else None
    found = kernels.product(x, weight.data, weight.scale, weight.least, 64, bias, True)
    wanted = x.double() @ weight.unpacked().double().T + (0 if bias is None else bias.double())
    gate, up = wanted.chunk(2, dim=1)
    assert relative(found, torch.nn.functional.silu(gate) * up) < 8e-3
    monkeypatch.setattr(product_kernels, "units", lambda *_: None)


@pytest.mark.parametrize("error", [RuntimeError("PassManager::run failed"), AssertionError()])
def test_a_card_whose_compiler_takes_no_gluon_has_the_older_kernels(error, monkeypatch: pytest.MonkeyPatch):
    def fails(*_: object) -> None:
        raise error

    taken = SimpleNamespace(knows=lambda *_: True, one_token=fails)
    monkeypatch.setattr(units, "_REFUSED", set())
    monkeypatch.setattr(units, "_module", lambda _: taken)
    monkeypatch.setattr(units, "_capability", lambda _: (8, 9))
    weight, x = drawn(4, 37, 9, 64), torch.randn(1, 9 * 64).bfloat16()
    told = x, weight.data, weight.scale, weight.least, 64
    monkeypatch.setattr(product_kernels, "_product", _Slow(weight))
    monkeypatch.setattr(product_kernels, "PROGRAMS", 1)
    with pytest.warns(UserWarning, match="older kernels instead of unit_product"):
        found = kernels.product(*told)
    assert relative(found, x.double() @ weight.unpacked().double().T) < 4e-3
    assert units.units("product", x.device) is None
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # it is said once
        assert torch.equal(kernels.product(*told), found)
    assert units.units("attention", x.device) is taken  # others are still tried


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory"),
        RuntimeError("Triton Error [CUDA]: out of memory"),
        RuntimeError("Triton Error [CUDA]: operation failed due to a previous error during capture"),
    ],
)
def test_what_fails_on_the_card_is_no_reason_for_older_kernels(error, monkeypatch: pytest.MonkeyPatch):
    def fails() -> None:
        raise error

    monkeypatch.setattr(units, "_REFUSED", set())
    with pytest.raises(type(error)):
        units.attempt("product", torch.device("cpu"), fails)
    assert not units._REFUSED


def test_the_card_that_is_asked_is_the_tensors(monkeypatch: pytest.MonkeyPatch):
    known = {0: (9, 0), 1: (7, 5), 2: (8, 6)}
    monkeypatch.setattr(units.triton.knobs.runtime, "interpret", False)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: known[device.index])
    cards = [torch.device("cuda", index) for index in known]
    try:
        assert [units.units("product", card) is not None for card in cards] == [True, False, True]
        assert [units.begins_early(card) for card in cards] == [True, False, False]
    finally:
        units._capability.cache_clear()


class _Slow:
    """Stands for a launch of the older kernel: plain torch."""

    def __init__(self, weight: Grouped) -> None:
        self.weight = weight

    def __getitem__(self, _: object) -> object:
        def launch(x, *given, **_: object) -> None:
            given[3].copy_(x.float() @ self.weight.unpacked().T)

        return launch


@pytest.mark.parametrize(("piece", "bias"), [(64, 0.0), (128, 3.0), (256, 3.0)])  # of one block to three
@pytest.mark.parametrize("fills", [(149, 64), (150, 0), (100, 3)])
def test_one_new_token_a_pot_of_8_bits(fills, piece, bias, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(unit_attention_kernels, "PIECE", piece)
    monkeypatch.setattr(unit_attention_kernels, "PROGRAMS", 1)
    rotation = Rotation(10000.0 ** (-torch.arange(0, DIM, 2) / DIM), 2 * SLOTS)
    offset = torch.randn(KV_HEADS, DIM) + bias
    queries = torch.randn(2, HEADS, 1, DIM).half()
    keys, values = torch.randn(2, 2, KV_HEADS, 1, DIM).half()
    layers = [RoundedLayer(SLOTS, rotation, offset.clone()) for _ in fills]
    for one, fill in zip(layers, fills, strict=True):
        one._allocate(keys[:1], values[:1])
        one.append(*torch.randn(2, 1, KV_HEADS, fill, DIM).half())
    twins = [one.copy() for one in layers]
    memory = [x for one in layers for x in (*one.tensors(), one.offset)]
    launched(monkeypatch, rounded_attention_kernels, unit_attention_kernels, "_unit_pieces", memory)
    monkeypatch.setattr(rounded_attention_kernels, "join", joined)
    at, length = torch.tensor([one.addresses for one in layers]).T.contiguous(), torch.tensor(fills)
    turn = rotation.cos, rotation.sin
    found = kernels.attend_rounded(queries, keys, values, at, *turn, length, SLOTS, DIM**-0.5)
    for row, (own, twin, fill) in enumerate(zip(layers, twins, fills, strict=True)):
        here = slice(row, row + 1)
        if fill < SLOTS:
            seen = twin.write_at(length[here], keys[here], values[here])
        else:  # padding: nothing is written
            whole = buffer(keys[here], values[here], SLOTS)
            twin._widen(whole, SLOTS)
            seen = whole.keys, whole.values
        wanted = attend_fixed(queries[here].double(), *(x.double() for x in seen), DIM**-0.5, length[here])
        assert relative(found[here], wanted) < 3e-3
        for mine, theirs in zip(own.tensors()[:4], twin.tensors()[:4], strict=True):
            apart = 1.01 if mine.dtype == torch.int8 else 1e-6  # a sum in another order rounds otherwise
            assert torch.allclose(mine.float(), theirs.float(), atol=apart)


def launched(
    monkeypatch: pytest.MonkeyPatch, user: ModuleType, module: ModuleType, name: str, memory: object = ()
) -> None:
    """Have a module use a kernel as if there were a card."""
    monkeypatch.setattr(user, "units", lambda *_: module)
    monkeypatch.setattr(module, name, kernel(module, name, memory))


def joined(
    sums: torch.Tensor, tops: torch.Tensor, totals: torch.Tensor, out: torch.Tensor, group: int
) -> torch.Tensor:
    """Pieces of attention as one: the slow twin of `join`, which needs a card where there is one."""
    weight = (tops - tops.amax(1, keepdim=True)).exp()[:, :, :group]
    total = (weight * totals[:, :, :group]).sum(1)[..., None]
    return out.copy_(((weight[..., None] * sums[:, :, :group]).sum(1) / total).view_as(out))
