"""A token's step by our own kernels against the decoder it stands for; in Triton's interpreter, no card."""

from __future__ import annotations

import copy

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

pytest.importorskip("triton", reason="without Triton there are no such steps")

from infinipot.core import pot_layer, rows
from infinipot.core.cuda import kernels
from infinipot.core.rows import FixedRows
from infinipot.hf.cuda import layers, steps
from infinipot.hf.cuda.load import Filler
from infinipot.hf.cuda.steps import CardSteps
from infinipot.hf.model import HFModel
from infinipot.hf.packed.load import skeleton
from plain_weights import PlainWeights, give_another_part

CPU = torch.device("cpu")
KIND = torch.float16  # the interpreter knows no bfloat16


def few_bits(how: str = "int4", **options: object) -> HFModel:
    config = LlamaConfig(
        vocab_size=64, hidden_size=64, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1, head_dim=64, max_position_embeddings=256, **options,
    )  # fmt: skip
    torch.manual_seed(0)
    plain, made = LlamaForCausalLM(config).to(KIND), skeleton(copy.deepcopy(config), KIND)
    for name, weight in plain.named_parameters():
        if "bias" in name or "norm" in name:
            torch.nn.init.normal_(weight, 1.0 if "norm" in name else 0.0, 0.3)
    Filler(PlainWeights(plain), how, CPU, KIND).fill(made)
    return HFModel(made.eval().requires_grad_(False))


def relative(found: torch.Tensor, wanted: torch.Tensor) -> float:
    return float((found.double() - wanted.double()).norm() / wanted.double().norm())


@pytest.mark.parametrize(("biased", "fill"), [(True, 40), (False, 63)])
def test_a_step_is_what_the_decoder_does(biased: bool, fill: int, monkeypatch: pytest.MonkeyPatch) -> None:
    model = few_bits(attention_bias=biased, mlp_bias=biased)
    assert model.steps is None  # no card
    for module in (steps, layers):
        monkeypatch.setattr(module, "kernels", lambda _: kernels)
    made = CardSteps.of(model.decoder)
    assert made is not None
    pot = model.new_pot(96, 48)
    model.forward(torch.randint(0, 64, (1, fill)), pot)
    twin, token = pot.fork(), torch.tensor([[5]])
    wanted = model.forward(token, twin)
    numbers = torch.tensor([[5], [pot.fill], [pot.position - pot.fill]])
    for module in (rows, pot_layer):
        monkeypatch.setattr(module, "kernels", lambda _: kernels)
    given = FixedRows([pot], torch.cat((numbers, torch.tensor(FixedRows.addresses(pot))[:, None])))
    frequencies = pot.layers[0].rotation.frequencies
    assert given.plain
    for turns in (True, False):  # heads are turned where they are attended to, and before
        monkeypatch.setattr(kernels, "turns", lambda *_, turns=turns: turns)
        found = made.run(token, given.places(1, CPU), given, frequencies)
        assert relative(found, wanted) < 3e-3
        for mine, its in zip(pot.pot_layers, twin.pot_layers, strict=True):
            assert relative(mine.keys[:, :, fill], its.keys[:, :, fill]) < 3e-3
            assert relative(mine.values[:, :, fill], its.values[:, :, fill]) < 3e-3
            mine.keys[:, :, fill] = mine.values[:, :, fill] = 0


@pytest.mark.parametrize("change", ["norm", "activation", "part", "sinks", "bits"])
def test_a_decoder_of_other_parts_has_no_steps(change: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (steps, layers):
        monkeypatch.setattr(module, "kernels", lambda _: kernels)
    decoder = few_bits("int8" if change == "bits" else "int4").decoder
    layer = decoder.layers[1]
    if change != "bits":
        give_another_part(layer, change)
    assert (CardSteps.of(decoder) is None) == (change != "bits")
