"""Continual Context Distillation with neither catalyst nor novelty: the paper's starting point."""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from infinipot.core.evidence import Evidence, Need
from infinipot.policies.base import ScoredPolicy


@dataclass(frozen=True)
class LastToken(ScoredPolicy):
    """The slots to which the last token attends most, head by head (section 3.4, "CCD")."""

    paper: ClassVar[str] = "InfiniPot (EMNLP 2024), sections 3.2 and 3.4"
    deviations: ClassVar[str] = (
        "grouped query heads are averaged; where a text ends as much stays as fits (`tail`, ADR 15), else "
        "the last chunk is distilled before a question, and up to 64 recent slots stay then and amid an "
        "answer (ADR 4)"
    )
    needs: ClassVar[frozenset[Need]] = frozenset({"last"})

    def score(self, evidence: Evidence, budget: int) -> Tensor:  # noqa: ARG002  any budget
        """Attention received from the last token."""
        assert evidence.last is not None
        return evidence.last
