"""Catalyst Prompt + Novelty under Compression, the paper's own choice of slots."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from infinipot.config import Pooling
from infinipot.policy import Need, ScoredPolicy
from infinipot.pot import Evidence
from infinipot.scores import pool


@dataclass(frozen=True)
class InfiniPot(ScoredPolicy):
    """The most novel slots first, the rest by the catalyst's attention (section 3.3.3)."""

    paper: ClassVar[str] = "InfiniPot (EMNLP 2024), equations 2 and 4, Appendix B"
    deviations: ClassVar[str] = (
        "|C| is not printed in the paper (half of |M| here); grouped query heads are averaged; "
        "pooling and protected slots are additions, off by default"
    )

    novelty: float = 0.5
    pool: int = 1
    pooling: Pooling = "mean"

    @property
    def needs(self) -> frozenset[Need]:
        """A share of 0 or 1 leaves one of the two scores unused."""
        needs: set[Need] = set()
        if self.novelty > 0:
            needs.add("novelty")
        if self.novelty < 1:
            needs.add("catalyst")
        return frozenset(needs)

    def score(self, evidence: Evidence, budget: int) -> Tensor:
        """Catalyst score, with the T = alpha * budget most novel slots put above all (Appendix B)."""
        if evidence.catalyst is None:
            score = torch.zeros_like(evidence.novelty)
        else:
            score = pool(evidence.catalyst, self.pool, self.pooling)
        free = budget - evidence.opening - evidence.recent
        count = max(0, min(round(self.novelty * budget), free))
        if count == 0:
            return score
        novel = evidence.novelty.masked_fill(evidence.protected, -torch.inf).topk(count, dim=-1).indices
        return score.scatter(-1, novel, torch.inf)
