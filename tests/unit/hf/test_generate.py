"""Our loop and transformers' generate() say the same, on a pot that has been distilled."""

import copy

import pytest
import torch

from families import FAMILIES, build
from infinipot.core.config import PotConfig
from infinipot.errors import InputError
from infinipot.hf.generate import generate_inputs
from infinipot.hf.model import HFModel
from infinipot.policies.infinipot import InfiniPot
from infinipot.reading.reader import Reader
from infinipot.reading.sampling import Generation
from infinipot.testing.tokenizer import ByteTokenizer


def reader(family: str) -> Reader:
    model = HFModel(copy.deepcopy(build(family)))
    potted = Reader(model, ByteTokenizer(), InfiniPot(), PotConfig(64, 24), catalyst="sum it up")
    potted.read("a tale of two kettles and a pot. " * 6)
    return potted


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_generate_gives_the_same_tokens_as_our_loop(family: str) -> None:
    potted = reader(family)
    assert potted.pot.cycles >= 3
    ours = list(potted.fork().generate(potted.closing("what?"), Generation(16), final=True))
    inputs = generate_inputs(potted, "what?", max_new_tokens=16)
    assert inputs.pop("eos_token_id") == [257]
    before = potted.pot.fill
    out = potted.model.model.generate(**inputs, do_sample=False, eos_token_id=None, pad_token_id=0)
    assert potted.pot.fill == before
    assert out[0, inputs["input_ids"].shape[1] :].tolist() == ours
    assert all(layer.entries <= 64 for layer in inputs["past_key_values"].pot.layers)


def test_room_for_the_whole_answer_is_made_first() -> None:
    potted = reader("llama-3")
    inputs = generate_inputs(potted, "what?", max_new_tokens=40)
    pot = inputs["past_key_values"].pot
    assert pot.fill + inputs["input_ids"].shape[1] + 40 <= 64
    assert inputs["attention_mask"].shape[1] == pot.fill + inputs["input_ids"].shape[1]
    with pytest.raises(InputError, match="too long"):
        generate_inputs(potted, "what?", max_new_tokens=64)
    assert torch.is_tensor(inputs["input_ids"])
