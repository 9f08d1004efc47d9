"""What an eviction method is, and where methods are found.

A policy is a frozen dataclass: it says which evidence it needs, so that only
that is computed, and picks the slots to keep. Packages add policies through
the entry point group `infinipot.policies`; our own use it too.
"""

from __future__ import annotations

import difflib
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points
from typing import ClassVar, Literal

import torch
from torch import Tensor

from infinipot.errors import ConfigError
from infinipot.pot import Evidence

Need = Literal["catalyst", "novelty"]
GROUP = "infinipot.policies"


@dataclass(frozen=True)
class Policy(ABC):
    """Chooses which slots survive a distillation."""

    paper: ClassVar[str] = ""
    deviations: ClassVar[str] = "none known"

    @property
    @abstractmethod
    def needs(self) -> frozenset[Need]:
        """Evidence to gather; what is not named is not computed."""

    @abstractmethod
    def select(self, evidence: Evidence, budget: int) -> Tensor:
        """Return exactly `budget` distinct slots to keep, ascending: [B, Hkv, budget]."""


@dataclass(frozen=True)
class ScoredPolicy(Policy):
    """A policy that keeps the slots of the highest score; protected ones first."""

    @abstractmethod
    def score(self, evidence: Evidence, budget: int) -> Tensor:
        """Importance of every slot [B, Hkv, S]; infinite for one that must stay."""

    def select(self, evidence: Evidence, budget: int) -> Tensor:
        """Keep the `budget` best slots, in reading order."""
        score = self.score(evidence, budget).masked_fill(evidence.protected, torch.inf)
        return score.topk(budget, dim=-1).indices.sort(dim=-1).values


@cache
def registry() -> dict[str, type[Policy]]:
    """Every installed policy by name."""
    return {point.name: point.load() for point in sorted(entry_points(group=GROUP), key=lambda p: p.name)}


def find(name: str) -> type[Policy]:
    """Return the policy of that name, or say which one was probably meant."""
    known = registry()
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean '{near[0]}'?" if near else f"known: {', '.join(known)}"
        raise ConfigError(f"unknown policy '{name}'; {hint}")
    return known[name]
