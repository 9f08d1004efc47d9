"""Joined products give the plain model's outputs, leave weights in place, and hold nothing between calls."""

from __future__ import annotations

import copy

import pytest
import torch

from families import build
from infinipot.hf.speed.joint import Part, join

IDS = torch.arange(1, 12)[None]


@pytest.mark.parametrize("family", ["llama-3.1", "qwen2.5", "gemma-2", "phi-3"])
@torch.no_grad()
def test_the_same_logits_and_weights(family: str) -> None:
    plain = build(family)
    joint = copy.deepcopy(plain)
    count = join(joint)
    assert count == (0 if family == "phi-3" else 2 * plain.config.num_hidden_layers)  # phi-3 comes joined
    torch.testing.assert_close(joint(IDS).logits, plain(IDS).logits, atol=1e-5, rtol=1e-5)
    for (name, a), (other, b) in zip(plain.named_parameters(), joint.named_parameters(), strict=True):
        assert name == other
        assert torch.equal(a, b)
    for module in joint.modules():
        if isinstance(module, Part):
            assert module.joint.seen is None
            assert module.joint.parts == ()


@torch.no_grad()
def test_a_part_asked_alone_or_with_another_input_is_right() -> None:
    model = copy.deepcopy(build("llama-3.1"))
    attention = model.model.layers[0].self_attn
    wanted = [copy.deepcopy(attention.q_proj), copy.deepcopy(attention.k_proj)]
    join(model)
    x, y = torch.randn(2, 3, attention.q_proj.in_features), torch.randn(1, 2, attention.q_proj.in_features)
    torch.testing.assert_close(attention.k_proj(x), wanted[1](x))
    torch.testing.assert_close(attention.q_proj(y), wanted[0](y))
    torch.testing.assert_close(attention.k_proj(x), wanted[1](x))


@torch.no_grad()
def test_joined_layers_compile() -> None:
    plain = build("llama-3.1")
    joint = copy.deepcopy(plain)
    join(joint)
    for layer in joint.model.layers:
        layer.compile(backend="eager")  # the tracer, not the code generator, is what could object
    torch.testing.assert_close(joint(IDS).logits, plain(IDS).logits, atol=1e-5, rtol=1e-5)
