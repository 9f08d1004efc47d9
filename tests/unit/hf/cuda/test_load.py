"""Whole models with weights in few bits, as a card holds them: here on the CPU, by the plain twins."""

from __future__ import annotations

import copy

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM

from infinipot.core.scores import novelty, novelty_by_parts
from infinipot.errors import ConfigError
from infinipot.hf import shapes
from infinipot.hf.cuda.load import Drawn, Filler
from infinipot.hf.cuda.modules import Fp8Linear, GroupedEmbedding, GroupedHead, GroupedLinear
from infinipot.hf.model import HFModel
from infinipot.hf.packed.choice import choose_weights, choose_what_fits
from infinipot.hf.packed.load import skeleton

CPU = torch.device("cpu")
SIZES = {
    "vocab_size": 320, "hidden_size": 128, "intermediate_size": 192, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 512,
}  # fmt: skip


class Plain:
    """A plain model's weights as a source."""

    def __init__(self, model) -> None:
        self.weights = model.state_dict()
        if model.config.tie_word_embeddings:
            del self.weights["lm_head.weight"]

    def has(self, name: str) -> bool:
        return name in self.weights

    def values(self, name: str) -> torch.Tensor:
        return self.weights[name]

    def blocks(self, name: str) -> None:
        """Nothing is packed."""


def pair(how: str, family: str = "llama", tied: bool = False):
    """A model in few bits and the plain one it was made from."""
    kind, config = {"llama": (LlamaForCausalLM, LlamaConfig), "qwen2": (Qwen2ForCausalLM, Qwen2Config)}[
        family
    ]
    torch.manual_seed(0)
    plain = kind(config(**SIZES, tie_word_embeddings=tied))
    few = skeleton(copy.deepcopy(plain.config), torch.float32)
    Filler(Plain(plain), how, CPU, torch.float32).fill(few)
    return few.eval().requires_grad_(False), plain.eval().requires_grad_(False)


def relative(found: torch.Tensor, wanted: torch.Tensor) -> float:
    return float((found - wanted).norm() / wanted.norm())


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("family", ["llama", "qwen2"])
@pytest.mark.parametrize(("how", "most"), [("int8", 0.05), ("int4", 0.5), ("fp8", 0.2)])
def test_logits_are_near_those_of_the_plain_model(how: str, most: float, family: str, tied: bool):
    few, plain = pair(how, family, tied)
    few, plain = HFModel(few), HFModel(plain)
    for count in (1, 20, 100):
        ids = torch.arange(1, count + 1)[None]
        found, wanted = (one.logits(one.forward(ids, one.new_pot(256, 128))) for one in (few, plain))
        assert relative(found, wanted) < most
    assert not any(weight.is_meta for weight in few.model.parameters())


def test_every_product_is_in_few_bits_and_the_ends_have_eight():
    few, _ = pair("int4")
    kinds = [type(module).__name__ for module in few.modules()]
    assert kinds.count("GroupedLinear") == 14
    assert "Linear" not in kinds
    assert isinstance(few.get_input_embeddings(), GroupedEmbedding)
    assert isinstance(few.get_output_embeddings(), GroupedHead)
    assert few.get_output_embeddings().held.weight.bits == 8
    attention = few.model.layers[0].self_attn
    assert attention.q_proj.held is attention.v_proj.held  # one product for few tokens
    assert few.model.layers[0].mlp.down_proj.held.weight.bits == 4


def test_few_and_many_tokens_are_multiplied_as_the_obvious_way_does():
    few, _ = pair("int4", "qwen2")
    attention = few.model.layers[1].self_attn
    for rows in (1, 5, 64, 65, 200):
        x = torch.randn(1, rows, 128)
        for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
            module = getattr(attention, name)
            assert isinstance(module, GroupedLinear)
            assert torch.allclose(module(x), module.slowly(x), atol=1e-4)
    few, _ = pair("fp8", "qwen2")
    module = few.model.layers[1].self_attn.q_proj
    assert isinstance(module, Fp8Linear)
    assert relative(module(x), module.slowly(x)) < 0.05  # the input is rounded too


def test_novelty_by_parts_of_the_head_is_novelty():
    model = HFModel(pair("int8")[0])
    hidden, targets = torch.randn(1, 90, 128), torch.randint(0, 320, (1, 90))
    assert len(list(model.head.parts(3000))) > 3
    found = novelty_by_parts(targets, ((at, hidden[0] @ rows.T) for at, rows in model.head.parts(3000)))
    assert torch.allclose(found, novelty(hidden, targets, model.logits, 320), atol=1e-4)
    whole = novelty_by_parts(targets, model.head_parts(hidden))
    assert torch.allclose(whole, found, atol=1e-4)
    assert model.head_parts(hidden[:, :1]) is None


def test_random_weights_are_drawn_one_by_one():
    model = shapes.build("tiny", CPU, torch.float32, "int4")
    assert not any(weight.is_meta for weight in (*model.parameters(), *model.buffers()))
    again = shapes.build("tiny", CPU, torch.float32, "int4")
    ids = torch.arange(9)[None]
    assert torch.equal(model(ids).logits, again(ids).logits)
    drawn = Drawn(skeleton(LlamaConfig(**SIZES), torch.float32), CPU, torch.float32)
    assert bool((drawn.values("model.norm.weight") == 1).all())
    assert 0.01 < float(drawn.values("lm_head.weight").std()) < 0.03


@pytest.mark.parametrize(("free", "held"), [(20, ""), (12, "int8"), (7, "int4"), (5, "")])
def test_weights_that_do_not_fit_a_card_in_full_are_held_in_what_fits(free: int, held: str):
    found = choose_what_fits(
        torch.device("cuda"), torch.bfloat16, None, lambda size: int(8e9 * size), int(free * 1e9)
    )
    assert found.on_card == held
    assert ("in full they take 16" in found.note) == bool(held)


def test_a_card_is_asked_what_it_can(monkeypatch: pytest.MonkeyPatch):
    card = torch.device("cuda")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda *_: (8, 0))
    with pytest.raises(ConfigError, match="does not multiply 8-bit floats") as refused:
        choose_weights("fp8", card, torch.bfloat16, None)
    assert refused.value.field == "weights"
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda *_: (9, 0))
    assert choose_weights("fp8", card, torch.bfloat16, None).on_card == "fp8"
    four = choose_weights("int4", card, torch.bfloat16, None)
    assert (four.on_card, four.rounded, four.packed) == ("int4", None, True)
    assert four.bytes(lambda size: int(1000 * size), 2, None) == 620
    assert choose_weights("auto", card, torch.bfloat16, None).packed is False
    with pytest.raises(ConfigError, match="CPUs and CUDA cards"):
        choose_weights("int4", torch.device("mps"), torch.float16, None)
