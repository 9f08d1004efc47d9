"""Token Omission Via Attention: the last token's attention, the same tokens for all heads of a layer."""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from infinipot.core.evidence import Evidence, Need
from infinipot.policies.base import ScoredPolicy


@dataclass(frozen=True)
class Tova(ScoredPolicy):
    """The slots to which the last token attends most, averaged over all heads of the layer."""

    paper: ClassVar[str] = "TOVA, Oren et al. 2024 (arXiv:2401.06104)"
    deviations: ClassVar[str] = (
        "drops many slots at a time, inside the CCD pipeline as in InfiniPot's tables, with what stays where "
        "a text ends (`tail`, ADR 15) and amid an answer (ADR 4); `step` 1 drops one; under tensor "
        "parallelism the mean is over each process's own heads"
    )
    needs: ClassVar[frozenset[Need]] = frozenset({"last"})

    def score(self, evidence: Evidence, budget: int) -> Tensor:  # noqa: ARG002  any budget
        """Attention received from the last token, one value for all heads."""
        assert evidence.last is not None
        return evidence.last.mean(1, keepdim=True).expand_as(evidence.last)
