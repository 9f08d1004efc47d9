"""SnapKV: what the end of the prompt attends to, pooled over neighbours, chosen once after the prompt."""

from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from infinipot.core.config import Pooling
from infinipot.core.evidence import Evidence, Need
from infinipot.errors import check
from infinipot.policies.base import ScoredPolicy


@dataclass(frozen=True)
class SnapKV(ScoredPolicy):
    """Keeps the last `window` slots and, by their pooled attention, the best of the others."""

    paper: ClassVar[str] = "SnapKV, Li et al. 2024 (arXiv:2404.14469)"
    deviations: ClassVar[str] = (
        "one choice per KV head, its query heads averaged (the original repeats KV heads and chooses per "
        "query head); every further turn of a chat is distilled again, observing what that turn wrote; "
        "where every layer of a model is local, its window counts entries after the cut"
    )
    needs: ClassVar[frozenset[Need]] = frozenset({"last"})

    window: int = 32
    kernel: int = 7
    pooling: Pooling = "max"

    def __post_init__(self) -> None:
        check(self.window >= 1, "window", self.window, "use at least 1")
        odd = self.kernel >= 1 and self.kernel % 2 == 1
        check(odd, "kernel", self.kernel, "use an odd number of slots, or 1 for no pooling")
        check(self.pooling in ("mean", "max"), "pooling", self.pooling, "use mean or max")

    @property
    def last(self) -> int:
        """The observation window."""
        return self.window

    @property
    def least(self) -> int:
        """The window and one slot before it."""
        return self.window + 1

    def score(self, evidence: Evidence, budget: int) -> Tensor:
        """Attention from the window on what came before it, pooled; the window above all."""
        assert evidence.last is not None
        window = min(self.window, budget - evidence.opening)
        past = evidence.last[..., : evidence.last.shape[-1] - window]
        # Padding counts in the mean at the edges, as in the original.
        pool = F.max_pool1d if self.pooling == "max" else F.avg_pool1d
        pooled = pool(past, self.kernel, stride=1, padding=self.kernel // 2)
        return F.pad(pooled, (0, window), value=torch.inf)
