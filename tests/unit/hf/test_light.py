"""transformers imported lightly, in processes of its own: what is left out, and that nothing is missed."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

SCRIPT = """
import json, sys
import infinipot
from infinipot.hf import light
if {own}: light.own_process()
if {broken}: light.NEEDED = (*light.NEEDED, "transformers.no_such_module")
was = light.import_transformers("{device}")
import torch, transformers as tf
from infinipot.hf.model import HFModel
from infinipot.recipes.recipe import Recipe
from infinipot.testing.tokenizer import ByteTokenizer
torch.manual_seed(0)
sizes = dict(hidden_size=32, intermediate_size=64, num_hidden_layers=2, vocab_size=300)
config = tf.LlamaConfig(num_attention_heads=4, num_key_value_heads=2, **sizes)
reader = Recipe.named(capacity=192).reader(HFModel(tf.LlamaForCausalLM(config)), ByteTokenizer())
reader.read("a text that is longer than the pot is. " * 8)
hidden = reader.session.state.last_hidden
names = ("torch._dynamo", "torch.distributed.tensor", "scipy")
left = [name for name in names if name not in sys.modules]
compiled = torch.compile(lambda x: x.sin() + 1, backend="eager")  # the real compiler, when it is asked for
right = bool((compiled(torch.ones(3)) == torch.ones(3).sin() + 1).all())
there = torch.distributed.is_available()
print(json.dumps(dict(was=was, left=left, hidden=hidden.flatten().tolist(), right=right, there=there)))
"""


def imported(own: bool = True, device: str = "cpu", broken: bool = False) -> dict:
    script = SCRIPT.format(own=own, device=device, broken=broken)
    return json.loads(subprocess.check_output([sys.executable, "-c", script], text=True).splitlines()[-1])


@pytest.fixture(scope="module")
def plainly() -> dict:
    return imported(own=False)


def test_a_process_of_our_own_leaves_out_what_reading_never_uses(plainly: dict) -> None:
    found = imported()
    assert found["was"]
    assert found["left"] == ["torch._dynamo", "torch.distributed.tensor", "scipy"]
    assert found["hidden"] == plainly["hidden"]
    assert found["right"]
    assert found["there"]


def test_a_process_of_others_gets_all_of_transformers(plainly: dict) -> None:
    assert not plainly["was"]
    assert "torch._dynamo" not in plainly["left"]


def test_a_transformers_that_needs_more_is_imported_in_full(plainly: dict) -> None:
    found = imported(broken=True)
    assert not found["was"]
    assert found["hidden"] == plainly["hidden"]


def test_a_card_gets_all_of_transformers() -> None:
    assert not imported(device="cuda")["was"]
