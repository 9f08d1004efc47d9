"""A control that knows nothing: every token of the text is equally likely to be kept."""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from infinipot.core.evidence import Evidence, Need
from infinipot.policies.base import ScoredPolicy

LOW = 0xFFFFFFFF  # the low 32 bits


@dataclass(frozen=True)
class RandomSample(ScoredPolicy):
    """A random sample of everything read, the same for all layers and heads: a control."""

    paper: ClassVar[str] = "none: a control"
    needs: ClassVar[frozenset[Need]] = frozenset()

    seed: int = 0

    def score(self, evidence: Evidence, budget: int) -> Tensor:  # noqa: ARG002  any budget
        """A fixed number for each place in the text, so that the sample stays even over many cycles."""
        mixed = (evidence.source + 1 + 0x9E3779B9 * self.seed) & LOW  # a hash of 32 bits (Murmur's finaliser)
        for factor in (0x85EBCA6B, 0xC2B2AE35):
            mixed = ((mixed ^ (mixed >> 16)) * factor) & LOW
        return ((mixed ^ (mixed >> 16)) >> 8).float()  # exact in 24 bits; Apple's chips have no float64
