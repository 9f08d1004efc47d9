"""What an eviction method is: which evidence the method needs, and which slots it keeps."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from infinipot.core.evidence import Evidence, Need


@dataclass(frozen=True)
class Policy(ABC):
    """Chooses which slots survive a distillation; a field is a knob of the recipe of the same name."""

    paper: ClassVar[str] = ""
    deviations: ClassVar[str] = "none known"

    @classmethod
    def unasked(cls, given: Mapping[str, Any]) -> dict[str, Any]:  # noqa: ARG003  a policy's own may read them
        """Return the settings that are others where no question is known, beside those given."""
        return {}

    @property
    @abstractmethod
    def needs(self) -> frozenset[Need]:
        """Evidence to gather; what is not named is not computed."""

    @property
    def last(self) -> int:
        """How many of the latest tokens' attention `Evidence.last` sums, where it is needed."""
        return 1

    @property
    def least(self) -> int:
        """The smallest budget that leaves anything to choose."""
        return 1

    @abstractmethod
    def select(self, evidence: Evidence, budget: int) -> Tensor:
        """Return `budget` distinct slots to keep, ascending: [B, Hkv, budget]; rows are independent."""

    def aged(self, novelty: Tensor) -> Tensor:
        """Return the kept slots' novelty [B, Hkv, n] after a distillation: the same tensor where it stays."""
        return novelty


@dataclass(frozen=True)
class ScoredPolicy(Policy):
    """A policy that keeps the slots of the highest score; protected ones first."""

    @abstractmethod
    def score(self, evidence: Evidence, budget: int) -> Tensor:
        """Importance of every slot [B, Hkv, S]; infinite for one that must stay."""

    def select(self, evidence: Evidence, budget: int) -> Tensor:
        """Keep the `budget` best slots, in reading order."""
        score = self.score(evidence, budget).masked_fill(evidence.protected, torch.inf)
        return self.best(score, budget).sort(dim=-1).values

    def best(self, score: Tensor, count: int) -> Tensor:
        """Return the `count` best slots, in any order; which of slots worth the same is left open."""
        return score.topk(count, dim=-1).indices
