"""A token through all layers in one graph, against the same layer by layer."""

from __future__ import annotations

import gc
import weakref
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from infinipot.core.attention import LogitSpec, attend
from infinipot.core.config import DEFAULT_MODE
from infinipot.core.pot import Pot
from infinipot.core.rows import Rows
from infinipot.hf.loading import load
from infinipot.hf.model import HFModel
from infinipot.hf.packed import ggml, whole
from infinipot.hf.packed.ggml import Ggml, Graph
from infinipot.hf.packed.whole import WholeToken
from toy_release import write_gguf

pytestmark = pytest.mark.skipif(isinstance(ggml.find(), str), reason=f"no ggml: {ggml.find()}")


@pytest.fixture(params=["compiled", "ggml's"])
def model(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> HFModel:
    if request.param == "compiled":
        request.getfixturevalue("compiling")
    else:
        monkeypatch.setattr(whole, "compiled", lambda *_: "not asked for")
    monkeypatch.setattr(whole, "SLOTS", 8)
    write_gguf(tmp_path / "tiny.gguf", "Q8_0")
    return HFModel(load(str(tmp_path / "tiny.gguf"), device="cpu", weights="auto").model)


def begun(model: HFModel, count: int = 5, capacity: int = 32) -> Pot:
    pot = model.new_pot(capacity, 8)
    model.forward(3 + torch.arange(count)[None] % 40, pot)
    return pot


def said(model: HFModel, pot: Pot, ids: list[int], by_graph: bool) -> torch.Tensor:
    """Hidden states of tokens that are written one by one."""
    assert model.steps is not None
    made = model.steps.whole
    model.steps.whole = made if by_graph else None
    try:
        return torch.cat([model.forward(torch.tensor([[one]]), pot) for one in ids], dim=1)
    finally:
        model.steps.whole = made


def alike(one: Pot, other: Pot) -> bool:
    """Say whether two pots hold the same, but for what rounding to 8 bits makes of last bits."""
    pairs = list(zip(one.pot_layers, other.pot_layers, strict=True))
    counted = all(
        torch.equal(a.source[..., : a.fill], b.source[..., : b.fill])
        and (a.fill, a.tokens, int(a.dropped)) == (b.fill, b.tokens, int(b.dropped))
        for a, b in pairs
    )
    return counted and all(
        torch.allclose(getattr(a, name)[:, :, : a.fill], getattr(b, name)[:, :, : b.fill], atol=0.02)
        for a, b in pairs
        for name in ("keys", "values")
    )


def test_tokens_are_those_of_the_steps(model: HFModel, request: pytest.FixtureRequest) -> None:
    assert model.steps is not None
    assert isinstance(model.steps.whole, WholeToken)
    assert isinstance(model.steps.whole.attention, str) == (request.node.callspec.id == "ggml's")
    ids, pots = [3 + 5 * turn % 37 for turn in range(27)], [begun(model), begun(model)]  # to the last slot
    found, wanted = (said(model, pot, ids, by) for pot, by in zip(pots, (True, False), strict=True))
    assert float((found - wanted).norm() / wanted.norm()) < 0.02
    assert pots[0].room == 0
    assert alike(*pots)


def test_what_lies_beyond_the_last_slot_is_not_seen(model: HFModel) -> None:
    pots = [begun(model), begun(model)]
    for layer in pots[0].pot_layers:
        layer.keys[:, :, layer.fill :], layer.values[:, :, layer.fill :] = 1e6, float("nan")
    found, wanted = (said(model, pot, [7, 8, 9], True) for pot in pots)
    assert torch.equal(found, wanted)


def test_every_pot_gets_its_own(model: HFModel) -> None:
    pots = [[begun(model, count) for count in (5, 9)] for _ in range(2)]
    for turn in range(4):
        for row in range(2):
            said(model, pots[0][row], [4 + turn], by_graph=True)
            said(model, pots[1][row], [4 + turn], by_graph=False)
    assert all(alike(ours, theirs) for ours, theirs in zip(*pots, strict=True))


def test_a_pot_is_not_kept_alive(model: HFModel) -> None:
    pot = begun(model)
    said(model, pot, [7], by_graph=True)
    keys = weakref.ref(pot.pot_layers[0].keys)
    del pot
    gc.collect()
    assert keys() is None


def test_what_it_does_not_serve(model: HFModel) -> None:
    assert model.steps is not None
    made, token = model.steps.whole, torch.tensor([[3]])
    assert made is not None
    assert made.serves(token, begun(model))
    observed, full = begun(model), begun(model, 32)
    observed.needs = frozenset({"running"})
    eight = model.new_pot(32, 8, bits=8)
    model.forward(token, eight)
    others: list[Pot | Rows] = [model.new_pot(32, 8), observed, full, eight, Rows([begun(model)])]
    grouped = replace(DEFAULT_MODE, positions="grouped", distil="never", window=4, group=2)
    grown = model.new_pot(32, 8, replace(DEFAULT_MODE, distil="never"))
    model.forward(3 + torch.arange(32)[None], grown)
    others += [grown, model.new_pot(32, 8, grouped)]
    assert not any(made.serves(token, pot) for pot in others)
    assert not made.serves(torch.tensor([[3], [4]]), begun(model))


def test_attention_on_slots_is_the_pots() -> None:
    kernels = ggml.find()
    assert isinstance(kernels, Ggml)
    source = torch.Generator().manual_seed(0)
    keys, values = (torch.randn(2, 24, 16, generator=source) for _ in range(2))
    queries, new = torch.randn(6, 16, generator=source), torch.randn(2, 16, generator=source)
    wanted_keys = keys.clone()
    wanted_keys[:, 10] = new
    seen = (wanted_keys[None, :, :11], values[None, :, :11])
    wanted = attend(queries.view(1, 6, 1, 16), *seen, LogitSpec(0.25)).view(6, 16)
    mask, out = torch.zeros(64, 16, dtype=torch.float16), torch.empty(1, 96)
    mask[0, 11:] = float("-inf")
    graph = Graph(kernels)
    held = [graph.slots(one) for one in (keys, values)]
    place = graph.input(torch.full((1, 1), 10))
    graph.apply("ggml_set_rows", held[0], graph.split(graph.input(new), 16, 1, 2), place, out=None)
    first = [graph.first(one, data, 16) for one, data in zip(held, (keys, values), strict=True)]
    heads = graph.split(graph.input(queries), 16, 1, 6)
    graph.apply("ggml_flash_attn_ext", heads, *first, graph.input(mask), 0.25, 0.0, 0.0, out=out)
    graph.run()
    assert torch.equal(keys, wanted_keys)
    assert torch.allclose(out.view(6, 16), wanted, atol=1e-5)


class Wrong:
    """Stands in for compiled attention, and comes to twice the queries."""

    def add(
        self, graph: Graph, queries: Tensor, keys: Tensor, values: Tensor, out: Tensor, _: Tensor
    ) -> None:
        graph.apply("ggml_add", graph.input(queries), graph.input(queries), out=out)


def test_where_compiled_attention_comes_to_something_else_ggmls_is_used(
    model: HFModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(whole, "compiled", lambda *_: Wrong())
    again = HFModel(model.model)
    assert again.steps is not None
    assert isinstance(again.steps.whole, WholeToken)
    assert again.note == f"{whole.SLOWER}: what llvmlite compiled comes to something else here"
    pots = [begun(again), begun(again)]
    found, wanted = (said(again, pot, [7, 8, 9], by) for pot, by in zip(pots, (True, False), strict=True))
    assert float((found - wanted).norm() / wanted.norm()) < 0.02


def test_a_graph_that_comes_to_something_else_is_not_used(
    model: HFModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = WholeToken.run
    monkeypatch.setattr(WholeToken, "run", lambda *given: right(*given) * 2)
    again = HFModel(model.model)
    assert again.steps is not None
    assert again.steps.whole is None
