"""SirLLM: the most surprising tokens, the same for all layers and heads."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from infinipot.core.evidence import Evidence, Need
from infinipot.errors import check
from infinipot.policies.base import ScoredPolicy


@dataclass(frozen=True)
class SirLLM(ScoredPolicy):
    """Keeps the first `sinks`, the latest `recent` and the most surprising slots.

    A slot's surprise is multiplied by `decay` at every distillation it survives.
    """

    paper: ClassVar[str] = "SirLLM, Yao et al. 2024 (ACL 2024)"
    deviations: ClassVar[str] = (
        "runs inside the CCD pipeline as in InfiniPot's tables, with what stays where a text ends (`tail`, "
        "ADR 15) and in the middle of an answer (ADR 4); no recent slots otherwise, as in SirLLM's own runs "
        "(`set` recent=N)"
    )
    needs: ClassVar[frozenset[Need]] = frozenset({"novelty"})

    sinks: int = 4
    recent: int = 0
    decay: float = 1.0

    def __post_init__(self) -> None:
        check(self.sinks >= 0, "sinks", self.sinks, "use 0 or more")
        check(self.recent >= 0, "recent", self.recent, "use 0 or more")
        check(0 < self.decay <= 1, "decay", self.decay, "use more than 0 and at most 1")

    @property
    def least(self) -> int:
        """The ends and one slot between them."""
        return self.sinks + self.recent + 1

    def score(self, evidence: Evidence, budget: int) -> Tensor:
        """Stored surprise; the ends above all."""
        first = min(self.sinks, budget - evidence.recent)
        latest = min(self.recent, budget - max(first, evidence.opening))
        return evidence.novelty.masked_fill(evidence.ends(first, latest), torch.inf)

    def aged(self, novelty: Tensor) -> Tensor:
        """Multiply the kept slots' surprise by `decay`."""
        return novelty * self.decay
