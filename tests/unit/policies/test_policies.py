"""Every policy keeps the slots of its slow, obvious twin: grouped heads, batch 1 and 3, float32."""

from __future__ import annotations

import copy

import pytest
import torch

from families import build
from infinipot.core.distill import distill
from infinipot.core.pot import Pot
from infinipot.core.scores import novelty
from infinipot.hf.model import HFModel
from infinipot.policies.base import Policy
from infinipot.policies.registry import registry
from infinipot.recipes.recipe import Recipe
from infinipot.testing import ByteTokenizer, ToyModel
from oracle import SlowPot
from slow_policies import SLOW

CHUNKS = (30, 14, 14, 14)
STEPS = (30, 1, 1, 1, 1, 1, 5, 1)
CATALYST = [17, 203, 88, 41]
CASES = [
    ("infinipot", {}, 16, CHUNKS),
    ("infinipot", {"novelty": 0.0}, 16, CHUNKS),
    ("infinipot", {"novelty": 1.0}, 16, CHUNKS),
    ("infinipot", {"pool": 1}, 16, CHUNKS),
    ("ccd", {}, 16, CHUNKS),
    ("tova", {}, 16, CHUNKS),
    ("tova", {}, 29, STEPS),
    ("streaming-llm", {}, 29, STEPS),
    ("streaming-llm", {"sinks": 0}, 16, CHUNKS),
    ("h2o", {}, 29, STEPS),
    ("h2o", {"heavy": 12}, 24, CHUNKS),
    ("random", {}, 16, CHUNKS),
    ("random", {"seed": 7}, 16, CHUNKS),
    ("sirllm", {}, 16, CHUNKS),
    ("sirllm", {"recent": 5, "decay": 0.7}, 16, CHUNKS),
    ("snapkv", {"window": 8, "kernel": 5, "pooling": "mean"}, 20, CHUNKS),
    ("snapkv", {"window": 8, "kernel": 1, "pooling": "max"}, 20, CHUNKS),
]


def models(family: str) -> tuple[HFModel, torch.nn.Module]:
    """The model in float32 behind ours, and its float64 twin for the oracle."""
    fast = HFModel(copy.deepcopy(build(family)))
    return fast, copy.deepcopy(build(family)).double()


def fast_round(model: HFModel, pot: Pot, policy: Policy, ids: torch.Tensor, before, catalyst: list[int]):
    """Write ids [B, n] and the catalyst in one pass; return the last hidden state."""
    extra = torch.tensor(catalyst, dtype=torch.long).expand(ids.shape[0], -1)
    with pot.writing(len(catalyst)):
        hidden = model.forward(torch.cat((ids, extra), 1), pot)[:, : ids.shape[1]]
    if before is None:
        first = torch.full((ids.shape[0], 1), model.vocabulary).log()
        rest = novelty(hidden[:, :-1], ids[:, 1:], model.logits, model.vocabulary)
        pot.note_novelty(torch.cat((first, rest), 1))
    else:
        hiddens = torch.cat((before, hidden[:, :-1]), 1)
        pot.note_novelty(novelty(hiddens, ids, model.logits, model.vocabulary))
    return hidden[:, -1:]


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize(("name", "knobs", "budget", "sizes"), CASES)
def test_kept_slots_are_those_of_the_slow_reference(name, knobs, budget, sizes, batch) -> None:
    fast, twin = models("llama-3.1")
    policy = registry()[name](**knobs)
    pot = fast.new_pot(30 + len(CATALYST), 30)
    pot.needs, pot.window = policy.needs, policy.last
    slow = [SlowPot(twin) for _ in range(batch)]
    catalyst = CATALYST if "catalyst" in policy.needs else []
    text = torch.randint(0, 320, (batch, sum(sizes)), generator=torch.Generator().manual_seed(4))
    before, start = None, 0
    for size in sizes:
        size = min(size, 30 - pot.fill)
        ids = text[:, start : start + size]
        start += size
        before = fast_round(fast, pot, policy, ids, before, catalyst)
        distill(pot, policy, budget)
        for row, one in zip(ids.tolist(), slow, strict=True):
            one.read(row)
            heard = one.ask_catalyst(catalyst) if catalyst else None
            if len(one.entries[0][0]) > budget:
                one.keep(
                    lambda layer, head, held, one=one, heard=heard: SLOW[name](
                        one, layer, head, held, budget, heard, **knobs
                    )
                )
        for index, layer in enumerate(pot.pot_layers):
            for b, one in enumerate(slow):
                for head in range(layer.source.shape[1]):
                    found = layer.source[b, head, : layer.fill].tolist()
                    assert found == one.sources(index, head), (index, b, head)
    assert pot.cycles >= 3


def test_every_registered_policy_has_a_slow_twin() -> None:
    ours = {name for name, cls in registry().items() if cls.__module__.startswith("infinipot.")}
    assert ours == set(SLOW) == {case[0] for case in CASES}


def test_max_pooling_keeps_what_is_near_a_peak() -> None:
    """Pooled scores tie, so the choice is compared by score and not by slot."""
    fast, twin = models("llama-3.1")
    policy = registry()["snapkv"](window=8, kernel=7)
    pot = fast.new_pot(48, 24)
    pot.needs, pot.window = policy.needs, policy.last
    ids = torch.randint(0, 320, (1, 48), generator=torch.Generator().manual_seed(4))
    slow = SlowPot(twin)
    slow.read(ids[0].tolist())
    with pot.writing():
        fast.forward(ids, pot)
    for evidence in pot.evidence():
        slots = policy.select(evidence, 24)
        for head in range(slots.shape[1]):
            score = slow.received(evidence.layer, head, 8)[:40]
            pooled = [max(score[max(0, i - 3) : i + 4]) for i in range(40)]
            kept = sorted((pooled[i] for i in slots[0, head].tolist() if i < 40), reverse=True)
            assert kept == pytest.approx(sorted(pooled, reverse=True)[:16], rel=1e-4)
            assert slots[0, head, 16:].tolist() == list(range(40, 48))


def test_a_random_sample_is_even_over_the_whole_text() -> None:
    reader = Recipe.named("random", capacity=256, tail="distil").reader(ToyModel(), ByteTokenizer())
    reader.read("x" * 8000)
    reader.session.write([], distil=True)
    for layer in reader.pot.pot_layers:
        kept = layer.source[0, 0, : layer.fill]
        assert len(kept) == 128
        for share in (0.25, 0.5, 0.75):  # 128 draws: five deviations are less than 0.23
            assert abs(float((kept < share * 8000).float().mean()) - share) < 0.2
