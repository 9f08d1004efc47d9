"""Weights in 4 and 8 bits on a card: kernels against plain torch, models against their own wide twins."""

from __future__ import annotations

import copy

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from gpu.random_models import DEVICE, VOCABULARY, read, reader, relative, tokens
from infinipot.core.cuda import kernels
from infinipot.hf.cuda import fp8
from infinipot.hf.cuda.grouped import Grouped, grouped
from infinipot.hf.cuda.load import Filler
from infinipot.hf.cuda.modules import GroupedLinear
from infinipot.hf.model import HFModel
from infinipot.hf.packed.load import skeleton
from infinipot.hf.speed.prepare import fuse
from infinipot.reading.sampling import Generation
from plain_weights import PlainWeights

SHAPES = ((6144, 4096), (4096, 14336), (28672, 4096), (1000, 1536))  # a weight's rows and columns
CARD = torch.device(DEVICE)


def weight(rows: int, columns: int) -> torch.Tensor:
    return torch.randn(rows, columns, device=DEVICE) * 0.02


def forms(full: torch.Tensor) -> list[Grouped]:
    """A weight as we round it, and as GGUF's formats lie: other groups, scales in float32, a least value."""
    wide = grouped(full, 4, CARD, 32)
    odd = Grouped(
        torch.randint(-32, 31, (full.shape[1] // 16, full.shape[0], 16), device=DEVICE, dtype=torch.int8),
        torch.rand(full.shape[1] // 16, full.shape[0], device=DEVICE) * 0.01,
        None,
        16,
    )
    least = None if wide.least is None else wide.least.float()
    return [
        grouped(full, 4, CARD),
        grouped(full, 8, CARD),
        Grouped(wide.data, wide.scale.float(), least, 32),
        odd,
    ]


def test_products_of_few_tokens() -> None:
    for shape in SHAPES:
        for made in forms(weight(*shape)):
            wide = made.unpacked().double()
            for rows in (1, 2, 7, 16, 33, 64):
                x = torch.randn(rows, shape[1], device=DEVICE).bfloat16()
                found = kernels.product(x, made.data, made.scale, made.least, made.group)
                assert relative(found, x.double() @ wide.T) < 0.006, (shape, made.layout, rows)


def test_rows_that_are_unpacked() -> None:
    for shape in SHAPES:
        for made in forms(weight(*shape)):
            out = torch.full((shape[0] - 100, shape[1]), float("nan"), device=DEVICE, dtype=torch.bfloat16)
            kernels.unpack(made.data, made.scale, made.least, made.group, 100, out)
            assert torch.equal(out, made.unpacked()[100:].bfloat16())


def test_products_in_8_bit_floats() -> None:
    if torch.cuda.get_device_capability() < fp8.LEAST_CARD:
        return
    for shape in ((6144, 4096), (4096, 14336)):
        made = fp8.rounded_weight([weight(*shape)], CARD)
        for rows in (1, 2, 8, 17, 64, 2048, 2074):
            x = torch.randn(rows, shape[1], device=DEVICE).bfloat16()
            rounded, own = fp8.rounded_rows(x)
            fast, scale = kernels.round_rows(x)
            assert relative(scale, own) < 1e-6
            assert relative(fast.float(), rounded.float()) < 0.01
            wanted = fp8.slow_product(rounded, own, made.data, made.scale)
            if rows == 1:  # is multiplied as it is
                wanted = x.double() @ made.unpacked().double().T
            assert relative(fp8.product(x, made.data, made.scale), wanted) < 0.01, (shape, rows)


def pair(how: str) -> tuple[HFModel, HFModel]:
    """A model in few bits, and a plain one whose weights are those of the first, unpacked."""
    config = LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=512, intermediate_size=1024, num_hidden_layers=4,
        num_attention_heads=8, num_key_value_heads=2, head_dim=64, max_position_embeddings=8192,
    )  # fmt: skip
    torch.manual_seed(0)
    plain = LlamaForCausalLM(config).to(DEVICE, torch.bfloat16)
    few = skeleton(copy.deepcopy(config), torch.bfloat16)
    Filler(PlainWeights(plain), how, CARD, torch.bfloat16).fill(few)
    for name, module in few.named_modules():
        if isinstance(module, GroupedLinear):  # 8-bit floats among them
            rows = slice(module.first, module.first + module.out_features)
            plain.get_submodule(name).weight.data = module.held.weight.unpacked()[rows].bfloat16()
    if how != "fp8":
        ends = few.get_input_embeddings().held.weight
        plain.get_input_embeddings().weight.data = ends.unpacked().bfloat16()
    return tuple(HFModel(one.eval().requires_grad_(False)) for one in (few, plain))  # type: ignore[return-value]


def agree(how: str, most: float, fused: bool = False) -> None:
    few, plain = pair(how)
    if fused:
        fuse(few.decoder)
    ids = tokens(3000)
    for count in (1, 40, 700):
        hidden = [
            one.forward(torch.tensor([ids[:count]], device=DEVICE), one.new_pot(1024, 512))
            for one in (few, plain)
        ]
        logits = [one.logits(x[:, -1]) for one, x in zip((few, plain), hidden, strict=True)]
        assert relative(*logits) < most, (how, count)
    by = reader(few)
    assert by.session.graphs is not None, by.session.capture_obstacle
    if fused:  # a compiled layer is compiled again for other lengths, and then rounds in another order
        read(by, ids)
        list(by.generate([1, 2, 3], Generation(40)))
        by.clear()
    read(by, ids)
    assert by.session.graphs.captured, by.session.graphs.reason
    assert by.session.graphs.reason == ""
    said = list(by.generate([1, 2, 3], Generation(40)))
    by.clear()
    read(by, ids)
    assert list(by.generate([1, 2, 3], Generation(40))) == said


def test_a_model_in_4_bits() -> None:
    agree("int4", 0.05)


def test_a_model_in_8_bits() -> None:
    agree("int8", 0.05)


def test_a_model_in_4_bits_with_compiled_layers() -> None:
    agree("int4", 0.05, fused=True)


def test_a_model_in_8_bit_floats() -> None:
    if torch.cuda.get_device_capability() >= fp8.LEAST_CARD:
        agree("fp8", 0.15)


def test_a_model_in_8_bit_floats_with_compiled_layers() -> None:
    if torch.cuda.get_device_capability() >= fp8.LEAST_CARD:
        agree("fp8", 0.15, fused=True)
