"""Weights in groups of 4 and 8 bits: rounding, GGUF's formats exactly, kernels against their plain twins."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from infinipot.core.cuda import kernels
from infinipot.hf.cuda import fp8
from infinipot.hf.cuda.grouped import Grouped, fits, grouped, joined
from infinipot.hf.cuda.repack import FORMATS, repacked
from infinipot.hf.packed.blocks import Blocks, block_size, slowly_unpacked

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
CPU = torch.device("cpu")


def relative(found: torch.Tensor, wanted: torch.Tensor) -> float:
    return float((found.double() - wanted.double()).norm() / wanted.double().norm())


@pytest.mark.parametrize(("bits", "most"), [(4, 0.095), (8, 0.007)])
def test_rounding_a_weight_is_as_good_as_its_bits(bits: int, most: float):
    weight = torch.randn(70, 256)
    found = grouped(weight, bits, CPU)
    assert found.shape == (70, 256)
    assert found.bits == bits
    assert relative(found.unpacked(), weight) < most
    held = (found.data, found.scale, found.least)
    assert sum(one.nbytes for one in held if one is not None) < (bits + 0.6) / 8 * weight.numel()


def test_groups_of_one_value_and_of_zeros_are_exact():
    weight = torch.zeros(3, 128)
    weight[1], weight[2, :64] = 0.5, -2.0
    for bits in (4, 8):
        assert torch.allclose(grouped(weight, bits, CPU).unpacked(), weight, atol=1e-3)


def test_what_fits():
    assert fits(torch.empty(5, 128))
    assert not fits(torch.empty(5, 100))
    assert not fits(torch.empty(128))


def test_rows_and_weights_below_each_other():
    one, two = (grouped(torch.randn(n, 128), 4, CPU) for n in (6, 9))
    both = joined([one, two])
    assert torch.equal(both.unpacked(), torch.cat((one.unpacked(), two.unpacked())))
    places = torch.tensor([3, 14, 3])
    assert torch.equal(both.rows(places).unpacked(), both.unpacked()[places])


def blocks(kind: int, rows: int = 5, width: int = 512) -> Blocks:
    """Blocks of random bytes whose scales are sound numbers."""
    values, size = block_size(kind)
    data = torch.randint(0, 256, (rows, width // values, size), dtype=torch.uint8)
    scales = {2: (0,), 3: (0, 2), 6: (0,), 7: (0, 2), 8: (0,), 12: (0, 2), 13: (0, 2), 14: (208,)}[kind]
    for at in scales:
        drawn = torch.rand(rows, width // values).add_(0.1).half()
        data[..., at : at + 2] = drawn.view(torch.uint8).view(rows, -1, 2)
    return Blocks(data.view(rows, -1), kind, width)


@pytest.mark.parametrize("kind", sorted(FORMATS))
def test_a_gguf_format_is_laid_out_exactly(kind: int):
    given = blocks(kind)
    found = repacked(given, CPU)
    assert found is not None
    assert found.bits == FORMATS[kind][1]
    assert np.array_equal(found.unpacked().numpy(), slowly_unpacked(given).numpy())


def test_an_unknown_format_is_left_to_others():
    assert repacked(Blocks(torch.zeros(1, 84, dtype=torch.uint8), 10, 256), CPU) is None


def forms(rows: int, width: int) -> list[Grouped]:
    full = torch.randn(rows, width, device=DEVICE)
    odd = Grouped(
        torch.randint(-32, 31, (width // 16, rows, 16), device=DEVICE, dtype=torch.int8),
        torch.rand(width // 16, rows, device=DEVICE),
        None,
        16,
    )
    return [grouped(full, 4, DEVICE), grouped(full, 8, DEVICE), grouped(full, 4, DEVICE, 32), odd]


@pytest.mark.parametrize("rows", [1, 5, 17])
def test_the_product_of_few_tokens(rows: int):
    for made in forms(50, 256):
        x = torch.randn(rows, 256, device=DEVICE).half()
        found = kernels.product(x, made.data, made.scale, made.least, made.group)
        assert relative(found, x.double() @ made.unpacked().double().T) < 2e-3


def test_a_product_without_splits(monkeypatch: pytest.MonkeyPatch):
    from infinipot.core.cuda import product_kernels

    monkeypatch.setattr(product_kernels, "PROGRAMS", 1)
    made, x = forms(50, 256)[0], torch.randn(3, 256, device=DEVICE).half()
    found = kernels.product(x, made.data, made.scale, made.least, made.group)
    assert relative(found, x.double() @ made.unpacked().double().T) < 2e-3


def test_rows_that_are_unpacked():
    for made in forms(50, 256):
        out = torch.full((40, 256), float("nan"), device=DEVICE, dtype=torch.float16)
        kernels.unpack(made.data, made.scale, made.least, made.group, 7, out)
        assert torch.allclose(out.float(), made.unpacked()[7:47], rtol=1e-3, atol=1e-3)


def test_8_bit_floats():
    weight, x = torch.randn(48, 64), torch.randn(5, 64)
    made = fp8.rounded_weight([weight[:16], weight[16:]], CPU)
    assert relative(made.unpacked(), weight) < 0.04
    rounded, scale = fp8.rounded_rows(x)
    assert relative(rounded.float() * scale, x) < 0.04
    wanted = (rounded.float() * scale) @ made.unpacked().T
    assert torch.allclose(fp8.product(x, made.data, made.scale), wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("spread", [False, True])
@pytest.mark.parametrize(("rows", "width"), [(48, 64), (50, 2064), (16, 5136)])
def test_8_bit_floats_times_a_token_alone(
    rows: int, width: int, spread: bool, monkeypatch: pytest.MonkeyPatch
):
    from infinipot.core.cuda import product_kernels

    monkeypatch.setattr(product_kernels, "FLOATS_SPREAD", spread)
    made = fp8.rounded_weight([torch.randn(rows, width, device=DEVICE)], DEVICE)
    x = torch.randn(1, width, device=DEVICE).half()
    found = kernels.product_alone(x, made.data, made.scale)
    assert relative(found, x.double() @ made.unpacked().double().T) < 1e-3
