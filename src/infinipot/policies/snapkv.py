"""SnapKV: what the end of the prompt attends to, pooled over neighbours, chosen once after the prompt."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from infinipot.core.config import Pooling
from infinipot.core.evidence import Evidence, Need
from infinipot.errors import ConfigError
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

    window: int = 32
    kernel: int = 7
    pooling: Pooling = "max"

    def __post_init__(self) -> None:
        if self.window < 1:
            raise ConfigError(f"window is {self.window}", field="window", remedy="use at least 1")
        if self.kernel < 1 or self.kernel % 2 == 0:
            raise ConfigError(
                f"kernel is {self.kernel}",
                field="kernel",
                remedy="use an odd number of slots, or 1 for no pooling",
            )
        if self.pooling not in ("mean", "max"):
            raise ConfigError(f"pooling is '{self.pooling}'", field="pooling", remedy="use mean or max")

    @property
    def needs(self) -> frozenset[Need]:
        """Attention of the last `window` tokens."""
        return frozenset({"last"})

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
