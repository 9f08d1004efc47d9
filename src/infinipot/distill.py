"""One distillation: ask the policy which slots stay, keep them, reset positions.

The forward pass that gathers the evidence belongs to the reader, since chunk
and catalyst run as one pass.
"""

from __future__ import annotations

from torch import Tensor

from infinipot.errors import ModelError
from infinipot.policy import Policy
from infinipot.pot import Evidence, Pot


def distill(pot: Pot, policy: Policy, budget: int, opening: int = 0, recent: int = 0) -> None:
    """Reduce every pot layer to `budget` entries; `opening` first and `recent` last slots stay."""
    if budget >= pot.fill:
        return
    pot.keep([_choose(policy, evidence, budget) for evidence in pot.evidence(opening, recent)])
    for layer in pot.pot_layers:
        kept = layer.novelty[:, :, :budget]
        kept.copy_(policy.aged(kept))


def _choose(policy: Policy, evidence: Evidence | None, budget: int) -> Tensor | None:
    if evidence is None:
        return None
    if any(getattr(evidence, need) is None for need in policy.needs):
        raise ModelError(
            f"this model is not supported: layer {evidence.layer} does not show its attention to the pot"
        )
    return policy.select(evidence, budget)
