"""StreamingLLM: the first few tokens as attention sinks, and the most recent ones."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from infinipot.core.evidence import Evidence, Need
from infinipot.errors import check
from infinipot.policies.base import Policy


@dataclass(frozen=True)
class StreamingLLM(Policy):
    """Keeps the first `sinks` slots and the latest ones, whatever they say."""

    paper: ClassVar[str] = "StreamingLLM, Xiao et al. 2024 (arXiv:2309.17453)"
    deviations: ClassVar[str] = "a question enters at once, not token by token"
    needs: ClassVar[frozenset[Need]] = frozenset()

    sinks: int = 4

    def __post_init__(self) -> None:
        check(self.sinks >= 0, "sinks", self.sinks, "use 0 or more")

    @property
    def least(self) -> int:
        """The sinks and one recent slot."""
        return self.sinks + 1

    def select(self, evidence: Evidence, budget: int) -> Tensor:
        """The first and the last slots: nothing to score or to sort."""
        batch, heads, slots = evidence.source.shape
        first = max(evidence.opening, min(self.sinks, budget - evidence.recent))
        places = torch.arange(budget, device=evidence.source.device)
        chosen = torch.where(places < first, places, places + slots - budget)
        return chosen.repeat(batch, heads, 1)
