"""Catalyst Prompt + Novelty under Compression, the paper's own choice of slots."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from infinipot.core.config import UNITS, Pooling, Units
from infinipot.core.evidence import Evidence, Need
from infinipot.core.scores import by_run, first_best, pool
from infinipot.errors import check
from infinipot.policies.base import ScoredPolicy


@dataclass(frozen=True)
class InfiniPot(ScoredPolicy):
    """The most novel slots first, the rest by the catalyst's attention (section 3.3.3).

    units     what stays or goes together: slots, or sentences, the default where no question is known: both
              scores are means over a sentence's slots that are still there, without `pool` (docs/adr/0024).
    novelty   alpha, the share of the budget given to the most novel slots.
    pool      catalyst scores are pooled over this many neighbouring slots, so that words survive in
              runs that can be read (docs/adr/0014); 1 is off, as in the paper.
    """

    paper: ClassVar[str] = "InfiniPot (EMNLP 2024), equations 2 and 4, Appendix B"
    deviations: ClassVar[str] = (
        "|C| is not printed in the paper (half of |M| here); grouped query heads are averaged; where a text "
        "ends as much stays as fits (`tail`, ADR 15), else the last chunk is distilled before a question, "
        "and up to 64 recent slots stay then and in the middle of an answer (ADR 4); scores are "
        "pooled over 7 slots (`pool` 1, ADR 14), or over whole sentences where no question is known (`units` "
        "slots, ADR 24); protected opening slots are an addition, off by default"
    )

    novelty: float = 0.5
    pool: int = 7
    pooling: Pooling = "mean"
    units: Units = "slots"

    def __post_init__(self) -> None:
        check(0 <= self.novelty <= 1, "novelty", self.novelty, "use a share between 0 and 1")
        odd = self.pool >= 1 and self.pool % 2 == 1
        check(odd, "pool", self.pool, "use an odd number of slots, or 1 for no pooling")
        check(self.pooling in ("mean", "max"), "pooling", self.pooling, "use mean or max")
        check(self.units in UNITS, "units", self.units, f"use {' or '.join(UNITS)}")

    @classmethod
    def unasked(cls, given: Mapping[str, Any]) -> dict[str, Any]:
        """Whole sentences, unless the slots are to be pooled or no catalyst is ever asked."""
        by_slots = {"pool", "pooling"} & {*given} or given.get("novelty") == 1
        return {} if by_slots else {"units": "sentences"}

    @property
    def needs(self) -> frozenset[Need]:
        """A share of 0 or 1 leaves one of the two scores unused."""
        used: dict[Need, bool] = {"novelty": self.novelty > 0, "catalyst": self.novelty < 1}
        used["sentence"] = self.units == "sentences"
        return frozenset(need for need in used if used[need])

    def score(self, evidence: Evidence, budget: int) -> Tensor:
        """Catalyst score, with the T = alpha * budget most novel slots put above all (Appendix B)."""
        score, novelty = torch.zeros_like(evidence.novelty), evidence.novelty
        if evidence.sentence is not None and self.units == "sentences":
            novelty = by_run(novelty, evidence.sentence)
            if evidence.catalyst is not None:
                score = by_run(evidence.catalyst, evidence.sentence)
        elif evidence.catalyst is not None:
            score = pool(evidence.catalyst, self.pool, self.pooling)
        free = budget - evidence.opening - evidence.recent
        count = max(0, min(round(self.novelty * budget), free))
        if count == 0:
            return score
        novel = self.best(novelty.masked_fill(evidence.protected, -torch.inf), count)
        return score.scatter(-1, novel, torch.inf)

    def best(self, score: Tensor, count: int) -> Tensor:
        """Return the best slots; of a sentence that does not fit whole, its beginning."""
        return first_best(score, count) if self.units == "sentences" else super().best(score, count)
