"""Compiled layers, without a card: what is compiled, and how often."""

from __future__ import annotations

import copy
from functools import partialmethod

import pytest
import torch
from torch._dynamo.utils import counters

from families import build
from infinipot.hf.model import HFModel
from infinipot.hf.speed.prepare import fuse

COMPILE = torch.nn.Module.compile


def compiled(layers: int, monkeypatch: pytest.MonkeyPatch) -> int:
    """Graphs compiled for a model of so many layers that reads at three lengths."""
    torch._dynamo.reset()
    counters.clear()
    config = copy.deepcopy(build("llama-3.1").config)
    config.num_hidden_layers = layers
    model = HFModel(type(build("llama-3.1"))(config).eval())
    monkeypatch.setattr(torch.nn.Module, "compile", partialmethod(COMPILE, backend="eager"))
    assert fuse(model.decoder) == layers
    for length in (40, 64, 1, 40, 64):
        pot = model.new_pot(256, 128)
        pot.lengths = frozenset({length})
        model.forward(torch.arange(3, 3 + length)[None], pot)
    return int(counters["stats"]["unique_graphs"])


def test_layers_of_one_shape_share_their_compilations(monkeypatch: pytest.MonkeyPatch) -> None:
    few, many = (compiled(layers, monkeypatch) for layers in (2, 5))
    assert 0 < many <= few
