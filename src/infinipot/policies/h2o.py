"""Heavy-Hitter Oracle: the slots that received most attention over their whole life, and the recent ones."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from infinipot.core.evidence import Evidence, Need
from infinipot.errors import check
from infinipot.policies.base import ScoredPolicy


@dataclass(frozen=True)
class H2O(ScoredPolicy):
    """Keeps the slots with most attention, summed over all queries so far, and the latest for the rest.

    heavy   how many slots are kept by their attention.
    share   the same as a share of what is kept; the larger of the two counts.
    """

    paper: ClassVar[str] = "H2O, Zhang et al. 2023 (arXiv:2306.14048)"
    deviations: ClassVar[str] = (
        "the four heavy hitters of InfiniPot's run are the default, H2O's own half and half is the recipe "
        "h2o-half; grouped query heads are averaged; a question enters at once, not token by token"
    )
    needs: ClassVar[frozenset[Need]] = frozenset({"running"})

    heavy: int = 4
    share: float = 0.0

    def __post_init__(self) -> None:
        check(self.heavy >= 0, "heavy", self.heavy, "use 0 or more")
        check(0 <= self.share < 1, "share", self.share, "use 0 or more, and less than 1")

    @property
    def least(self) -> int:
        """The heavy hitters and one recent slot."""
        return self.heavy + 1

    def score(self, evidence: Evidence, budget: int) -> Tensor:
        """Running attention; the latest slots above all."""
        assert evidence.running is not None
        heavy = max(self.heavy, round(self.share * budget))
        latest = max(0, budget - heavy - evidence.opening)
        return evidence.running.masked_fill(evidence.ends(0, latest), torch.inf)
