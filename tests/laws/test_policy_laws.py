"""What every registered policy must do, whatever the evidence."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from infinipot.core.evidence import Evidence
from infinipot.core.scores import by_run
from infinipot.policies.base import Policy
from infinipot.policies.registry import registry


@st.composite
def situations(draw: st.DrawFn) -> tuple[Evidence, int]:
    slots = draw(st.integers(2, 60))
    budget = draw(st.integers(1, slots - 1))
    opening = draw(st.integers(0, budget))
    recent = draw(st.integers(0, budget - opening))
    source = torch.Generator().manual_seed(draw(st.integers(0, 2**16)))
    shape = (draw(st.sampled_from([1, 3])), draw(st.sampled_from([1, 2])), slots)
    ties = draw(st.booleans())

    def scores() -> torch.Tensor:
        drawn = torch.rand(shape, generator=source)
        return drawn.round() if ties else drawn

    place = torch.arange(slots).expand(shape)
    sentence = (torch.rand(shape, generator=source) < 0.2).cumsum(-1).int()
    return Evidence(0, place, scores(), scores(), scores(), scores(), opening, recent, sentence), budget


POLICIES = [*(cls() for cls in registry().values()), registry()["infinipot"](units="sentences")]  # type: ignore[call-arg]


@pytest.mark.parametrize("policy", POLICIES, ids=lambda p: f"{type(p).__name__}-{getattr(p, 'units', '')}")
@given(situation=situations())
def test_exactly_the_budget_unique_sorted_protected_kept(
    policy: Policy, situation: tuple[Evidence, int]
) -> None:
    evidence, budget = situation
    slots = policy.select(evidence, budget)
    assert slots.shape == (*evidence.source.shape[:2], budget)
    assert (slots.diff(dim=-1) > 0).all()  # ascending, hence unique
    assert slots.min() >= 0
    assert slots.max() < evidence.source.shape[-1]
    kept = torch.zeros(evidence.source.shape).scatter(-1, slots, 1.0).bool()
    assert kept[..., evidence.protected].all()
    assert torch.equal(slots, policy.select(evidence, budget))


@given(situation=situations(), share=st.floats(0, 1))
def test_infinipot_is_the_two_step_choice_of_the_paper(situation: tuple[Evidence, int], share: float) -> None:
    evidence, budget = situation
    spread = torch.rand_like(evidence.novelty).argsort(-1)  # no ties: the choice is unique
    scores = ((1024 * (8 * one).round() + spread) for one in (evidence.novelty, evidence.catalyst))
    evidence = Evidence(0, evidence.source, *scores)
    slots = registry()["infinipot"](novelty=share, pool=1).select(evidence, budget)
    for b in range(slots.shape[0]):
        for h in range(slots.shape[1]):
            novelty, score = evidence.novelty[b, h].tolist(), evidence.catalyst[b, h].tolist()
            first = sorted(range(len(novelty)), key=lambda i: -novelty[i])[: round(share * budget)]
            rest = sorted((i for i in range(len(score)) if i not in first), key=lambda i: -score[i])
            assert slots[b, h].tolist() == sorted(first + rest[: budget - len(first)])


@given(situation=situations(), share=st.floats(0, 1))
def test_sentences_stay_or_go_whole(situation: tuple[Evidence, int], share: float) -> None:
    evidence, budget = situation
    evidence = replace(evidence, opening=0, recent=0)
    slots = registry()["infinipot"](novelty=share, units="sentences").select(evidence, budget)
    kept = torch.zeros(evidence.source.shape).scatter(-1, slots, 1.0)
    assert evidence.sentence is not None
    for rows in zip(kept.flatten(0, 1), evidence.sentence.flatten(0, 1), strict=True):
        shares = [rows[0][rows[1] == number].mean() for number in rows[1].unique()]
        assert sum(0 < one < 1 for one in shares) <= 2  # one where novelty's half ends, one where all does


def test_an_infinite_novelty_spoils_no_other_sentence() -> None:
    score, number = torch.tensor([[[1.0, torch.inf, 2.0, 4.0]]]), torch.tensor([[[0, 0, 1, 1]]])
    means = by_run(score, number)[0, 0]
    assert means[2:].tolist() == [3.0, 3.0]
    assert means[:2].isfinite().all()
    assert means[0] > 1000


def test_only_needed_evidence_is_asked_for() -> None:
    policy = registry()["infinipot"]
    assert policy(novelty=0.0).needs == {"catalyst"}
    assert policy(novelty=1.0).needs == {"novelty"}
    assert policy(novelty=0.5).needs == {"catalyst", "novelty"}
    assert policy(units="sentences").needs == {"catalyst", "novelty", "sentence"}
