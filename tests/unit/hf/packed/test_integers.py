"""Products of many tokens in 8 bits: the slow twin's, and near those of the unpacked weight."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from math import gcd

import pytest
import torch
from torch import nn

from infinipot.hf.packed import ggml, integers, modules
from infinipot.hf.packed.blocks import Blocks, packed, slowly_unpacked, unpacked
from infinipot.hf.packed.modules import (
    FEW,
    PackedHead,
    PackedLinear,
    PackedMlp,
    Shared,
    mix_attention,
    round_many,
)

pytestmark = [
    pytest.mark.skipif(isinstance(ggml.find(), str), reason=f"no ggml: {ggml.find()}"),
    pytest.mark.skipif(not integers.has_int8(), reason="needs AVX2 and oneDNN"),
]
NEAR = 0.02  # what rounding both sides to 8 bits costs


@pytest.fixture(autouse=True, params=[integers.LARGEST, integers.NARROW], ids=["vnni", "pairs"])
def limit(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Weights of 8 bits where this processor can, and of 7 as on one without VNNI."""
    if request.param > integers.weight_limit():
        pytest.skip("needs a processor with AVX-512 VNNI")
    monkeypatch.setattr(integers, "weight_limit", lambda: request.param)
    return int(request.param)


def error(found: torch.Tensor, wanted: torch.Tensor) -> float:
    return float((found - wanted).norm() / wanted.norm())


def slowly(x: torch.Tensor, weight: Blocks) -> torch.Tensor:
    """The twin: a product of x [n, k], by unpacking everything and adding up in float64."""
    sides, size = [], gcd(integers.TURNED, weight.width)
    for values, largest in ((x, integers.LARGEST), (slowly_unpacked(weight), integers.weight_limit())):
        turned = (values.double().view(len(values), -1, size) @ integers.turn(size).double()).flatten(1)
        scales = turned.abs().amax(1, keepdim=True) / largest
        sides.append((turned / scales).round() * scales)
    return (sides[0] @ sides[1].T).float()


@pytest.mark.parametrize("kind", [3, 8, 12, 14], ids=lambda kind: ggml.UNPACK[kind])
@pytest.mark.parametrize(
    ("tokens", "rows", "width"), [(65, 96, 256), (300, 700, 768), (1, 3, 256), (70, 1, 256)]
)
def test_products_are_those_of_the_slow_twin(kind: int, tokens: int, rows: int, width: int) -> None:
    weight, x = packed(torch.randn(rows, width), kind), torch.randn(tokens, width)
    found = integers.product(integers.inputs(x), weight)
    assert error(found, slowly(x, weight)) < 2e-3  # a value half way may be rounded either way
    assert error(found, x @ unpacked(weight).T) < NEAR


@pytest.mark.parametrize("width", [32, 96, 576])
def test_narrow_weights_are_turned_in_smaller_blocks(width: int) -> None:
    weight, x = packed(torch.randn(40, width), 8), torch.randn(70, width)
    found = integers.product(integers.inputs(x), weight)
    assert error(found, slowly(x, weight)) < 2e-3
    assert error(found, x @ unpacked(weight).T) < NEAR


def test_a_column_that_stands_out_does_not_spoil_the_others() -> None:
    weight, x = packed(torch.randn(96, 512), 12), torch.randn(70, 512)
    x[:, 7] *= 200
    rest = x.clone()
    rest[:, 7] = 0
    alone = x - rest
    found = integers.product(integers.inputs(x), weight) - alone @ unpacked(weight).T
    scale = x.abs().amax(1, keepdim=True) / 127
    plain = (x / scale).round() * scale @ unpacked(weight).T - alone @ unpacked(weight).T
    wanted = rest @ unpacked(weight).T
    assert error(found, wanted) < error(plain, wanted) / 2


def test_turning_is_its_own_inverse() -> None:
    for size in (1, 2, 32, 64):
        assert torch.allclose(integers.turn(size) @ integers.turn(size), torch.eye(size), atol=1e-5)


def test_inputs_are_not_changed_and_zeros_stay() -> None:
    x = torch.randn(70, 256)
    x[3] = 0
    before = x.clone()
    found = integers.product(integers.inputs(x), packed(torch.randn(64, 256), 12))
    assert torch.equal(x, before)
    assert not found[3].any()
    assert found.isfinite().all()


def test_the_largest_values_do_not_overflow() -> None:
    x, weight = torch.ones(70, 8960), packed(torch.ones(64, 8960), 8)
    found = integers.product(integers.inputs(x), weight)
    assert error(found, x @ slowly_unpacked(weight).T) < 1e-3


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.int8])
def test_modules_round_many_tokens_once_they_are_told_to(
    kind: torch.dtype, limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, up, down = (packed(torch.randn(*shape) / 16, 12) for shape in ((512, 256), (512, 256), (256, 512)))
    shared = Shared([gate, up], "a")
    first, second = (PackedLinear(shared, index, None) for index in (0, 1))
    mlp = PackedMlp(nn.Identity(), gate, up, down)
    model, x = nn.ModuleList([first, second, mlp]), torch.randn(1, FEW + 6, 256)
    exact = [module(x).clone() for module in (first, second, mlp)]
    few = first(x[:, :FEW]).clone()
    assert not round_many(model, torch.int8)  # too narrow
    assert torch.equal(mlp(x), exact[2])
    monkeypatch.setattr(modules, "WIDE", 256)
    assert round_many(model, kind)
    for module, wanted in zip((first, second, mlp), exact, strict=True):
        found = module(x)
        assert not torch.equal(found, wanted)
        assert error(found, wanted) < NEAR * (1 if limit == integers.LARGEST else 1.5)
    assert torch.equal(first(x[:, :FEW]), few)  # few tokens are ggml's as before


def test_the_instructions_can_be_reported_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    assert integers.has_int8()
    monkeypatch.setenv(integers.ABSENT, "1")
    assert not integers.has_int8()


def test_a_weight_stays_within_its_limit(limit: int) -> None:
    integers.product(integers.inputs(torch.randn(70, 512)), packed(torch.randn(96, 512), 12))
    whole = integers.buffer("weight", torch.int8, 96, 512)
    assert int(whole.abs().max()) == limit


@pytest.mark.parametrize("rounds", [None, torch.bfloat16, torch.int8])
def test_a_head_in_parts_has_every_row_of_the_vocabulary_once(rounds: torch.dtype | None) -> None:
    head, x = PackedHead(packed(torch.randn(300, 256), 14), None), torch.randn(70, 256)
    head.rounds = rounds
    parts = [(first, logits.clone()) for first, logits in head.parts(x, 64 * 256)]
    assert [first for first, _ in parts] == [0, 64, 128, 192, 256]
    found, wanted = torch.cat([logits for _, logits in parts], 1), x @ unpacked(head.blocks).T
    assert error(found, wanted) < NEAR
    assert (error(found, wanted) > 1e-4) == (rounds is not None)


def test_attention_modules_are_told_to_multiply_in_bfloat16() -> None:
    attention, small, other = (nn.Linear(2, 2) for _ in range(3))
    attention.head_dim, small.head_dim = 128, 64
    mix_attention(nn.ModuleList([attention, small, other]))
    assert attention.mixed
    assert not hasattr(small, "mixed")
    assert not hasattr(other, "mixed")


LIMITED = """
import torch
from infinipot.hf.packed import integers
from infinipot.hf.speed.products import has_bfloat16
assert integers.weight_limit() == integers.NARROW, integers.weight_limit()
for rows, width in ((64, 1536), (700, 8960), (2, 64)):
    x = torch.where(torch.rand(70, width) < 0.5, -127, 127).to(torch.int8)
    for sign in (1, -1):
        whole = torch.full((rows, width), sign * integers.NARROW, dtype=torch.int8)
        assert torch.equal(torch._int_mm(x, whole.T).long(), x.long() @ whole.T.long())
assert not has_bfloat16()
"""


def test_a_processor_without_vnni_multiplies_exactly() -> None:
    if platform.machine().lower() not in ("x86_64", "amd64"):
        pytest.skip("needs an x86 processor")
    hidden = {"ONEDNN_MAX_CPU_ISA": "AVX2", "ATEN_CPU_CAPABILITY": "avx2"}
    environment = {name: value for name, value in os.environ.items() if name != integers.ABSENT}
    subprocess.run([sys.executable, "-c", LIMITED], env={**environment, **hidden}, check=True)
