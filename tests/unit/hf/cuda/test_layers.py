"""A decoder's layers by our own kernels against the decoder itself; in Triton's interpreter, no card."""

from __future__ import annotations

import copy

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

pytest.importorskip("triton", reason="without Triton there are no such layers")

from cudnn_in_torch import attend, attend_as_on_a_card
from infinipot.core import keep, pot_layer, rounded_layer, rows
from infinipot.core import pot as pots
from infinipot.core.cuda import kernels
from infinipot.core.rows import FixedRows, Rows
from infinipot.hf.cuda import fp8, layers
from infinipot.hf.cuda.layers import CardLayers
from infinipot.hf.cuda.load import Filler
from infinipot.hf.model import HFModel
from infinipot.hf.packed.load import skeleton
from infinipot.hf.speed.joint import join
from infinipot.hf.speed.prepare import own_layers
from infinipot.reading.surprise import surprise
from plain_weights import PlainWeights, give_another_part

CPU = torch.device("cpu")
KIND = torch.float16  # the interpreter knows no bfloat16


def model_of(weights: str, **options: object) -> HFModel:
    config = LlamaConfig(
        vocab_size=64, hidden_size=64, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1,
        head_dim=64, max_position_embeddings=256, **{"intermediate_size": 96, **options},
    )  # fmt: skip
    torch.manual_seed(0)
    made = LlamaForCausalLM(config).to(KIND)
    for name, weight in made.named_parameters():
        if "bias" in name or "norm" in name:
            torch.nn.init.normal_(weight, 1.0 if "norm" in name else 0.0, 0.3)
    if weights == "fp8":
        plain, made = made, skeleton(copy.deepcopy(config), KIND)
        Filler(PlainWeights(plain), "fp8", CPU, KIND).fill(made)
    found = HFModel(made.eval().requires_grad_(False))
    join(found.decoder)
    return found


@pytest.fixture(autouse=True)
def _kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (layers, rows, pot_layer, rounded_layer, keep):
        monkeypatch.setattr(module, "kernels", lambda _: kernels)


def test_whoever_listens_to_a_module_is_told() -> None:
    model = model_of("full")
    handle = model.decoder.layers[1].mlp.down_proj.register_forward_hook(lambda *_: None)
    assert own_layers(model) is None
    handle.remove()
    assert own_layers(model) is not None


def test_modules_that_were_put_in_later_are_used() -> None:
    model = model_of("full")
    made = own_layers(model)
    assert made is not None
    assert made.stands()
    output = model.decoder.layers[1].self_attn.o_proj
    model.decoder.layers[1].self_attn.o_proj = torch.nn.Sequential(output)  # as an adapter does
    assert not made.stands()
    model.layers, text = made, torch.arange(8)[None]
    found = model.forward(text, model.new_pot(16, 8))
    output.weight.data.mul_(2)
    assert relative(model.forward(text, model.new_pot(16, 8)), found) > 0.01


def test_layers_of_which_some_weights_stay_plain_are_multiplied_as_they_are() -> None:
    model = model_of("fp8", intermediate_size=100)  # no multiple of 16
    made = own_layers(model)
    text = torch.arange(8)[None]
    found = [model.forward(text, model.new_pot(16, 8)) for model.layers in (None, made)]
    assert relative(found[1], found[0]) < 0.1


def relative(found: torch.Tensor, wanted: torch.Tensor) -> float:
    return float((found.double() - wanted.double()).norm() / wanted.double().norm())


@pytest.mark.parametrize("weights", ["full", "fp8"])
@pytest.mark.parametrize("biased", [True, False])
def test_layers_are_what_the_decoder_does(weights: str, biased: bool) -> None:
    model = model_of(weights, attention_bias=biased, mlp_bias=biased)
    assert model.layers is None  # no card
    made = own_layers(model)
    assert isinstance(made, CardLayers)
    assert model.layers is None
    made.products[0][0].bias = torch.ones(256, dtype=KIND)  # what computes something else is seen
    made.decoder.layers[0].mlp.up_proj.index = 0
    assert own_layers(model) is None


@pytest.mark.parametrize("weights", ["full", "fp8"])
def test_a_second_chunk_as_on_a_card(weights: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Attention on cached and on new keys, which become one where they are rounded."""
    model = model_of(weights)
    made = CardLayers.of(model.decoder)
    text, more = torch.randint(0, 64, (1, 40)), torch.randint(0, 64, (1, 24))
    out, merged, both = [], list[int](), kernels.merge_rounded
    for model.layers in (None, made):
        pot = model.new_pot(96, 48)
        model.forward(text, pot)
        if model.layers is not None:
            attend_as_on_a_card(monkeypatch)
            monkeypatch.setattr(pots, "attend", attend)
            monkeypatch.setattr(kernels, "merge_rounded", lambda *all_: merged.append(1) or both(*all_))
        out.append(model.forward(more, pot))
    assert relative(out[1], out[0]) < (3e-3 if weights == "full" else 0.08)
    assert len(merged) == (2 if weights == "fp8" else 0)  # layers


@pytest.mark.parametrize("weights", ["full", "fp8"])
@pytest.mark.parametrize("bits", [16, 8])
def test_a_chunk_one_more_token_and_several_pots(weights: str, bits: int) -> None:
    """With inputs rounded: what is written differs by what rounding may."""
    model = model_of(weights)
    made = CardLayers.of(model.decoder)
    assert made is not None
    most = 3e-3 if weights == "full" else 0.08
    pots = [model.new_pot(96, 48, bits=bits) for _ in range(2)]
    text, more = torch.randint(0, 64, (1, 40)), torch.tensor([[5]])
    out = []
    for model.layers, pot in zip((None, made), pots, strict=True):
        out.append([model.forward(text, pot), model.forward(more, pot)])
    for found, wanted in zip(out[1], out[0], strict=True):
        assert relative(found, wanted) < most
    for mine, its in zip(pots[1].pot_layers, pots[0].pot_layers, strict=True):
        for name in ("keys", "values", "source"):
            assert relative(getattr(mine, name)[:, :, :41], getattr(its, name)[:, :, :41]) < most, name
    tokens = torch.tensor([[7], [9]])
    for kind in ("rows", "fixed"):
        out = []
        for model.layers in (None, made):
            several = [pots[0].fork(), pots[1].fork()]
            given = Rows(several)
            if kind == "fixed":
                numbers = torch.tensor([[7, 9], [pot.fill for pot in several], [0, 0]])
                at = torch.tensor([FixedRows.addresses(pot) for pot in several]).T
                given = FixedRows(several, torch.cat((numbers, at)))
            out.append(model.forward(tokens, given))
        assert relative(out[1], out[0]) < most


@pytest.mark.parametrize("change", ["norm", "activation", "part", "sinks", "order", "apart"])
def test_a_decoder_of_other_parts_has_no_layers(change: str) -> None:
    decoder = model_of("full").decoder
    layer = decoder.layers[1]
    if change == "order":
        layer.mlp.gate_proj, layer.mlp.up_proj = layer.mlp.up_proj, layer.mlp.gate_proj
    elif change == "apart":
        layer.mlp.gate_proj, layer.mlp.up_proj = torch.nn.Linear(64, 96), torch.nn.Linear(64, 96)
    else:
        give_another_part(layer, change)
    assert CardLayers.of(decoder) is None


def test_novelty_is_by_a_rough_head_and_answers_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    model = model_of("fp8")
    hidden = torch.randn(5, 64).to(KIND)
    exact, rough = model.logits(hidden), model.rough_logits(hidden)
    assert 0 < relative(rough, exact) < 0.06
    assert torch.equal(exact, model.head(hidden))
    assert not [name for name, _ in model.named_weights() if "rough" in name]  # saved pots stay readable
    before, rest = hidden[None, :1], torch.cat((hidden[1:], hidden[:1]))[None]
    novelty = surprise(model, rest, torch.arange(5)[None], before)[0]
    wanted = torch.nn.functional.cross_entropy(rough.float(), torch.arange(5), reduction="none")
    assert torch.allclose(novelty, wanted, atol=1e-3)
    monkeypatch.setattr(fp8, "ROUGH_HEAD", False)
    assert torch.equal(model.rough_logits(hidden), exact)
    assert torch.equal(model_of("full").rough_logits(hidden), model_of("full").logits(hidden))
