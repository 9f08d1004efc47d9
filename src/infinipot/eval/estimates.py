"""Means of scores and their intervals of 95%: Wilson's for right or wrong, else a seeded bootstrap.

A task with fewer than `FEW` rows enters no average over tasks: one row more or less would move it.
"""

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import fmean

Z = 1.959964  # of 95%
RESAMPLES = 1000
FEW = 10


@dataclass(frozen=True)
class Estimate:
    """A mean, the interval it lies in, and how many scores it is of."""

    mean: float
    low: float
    high: float
    count: int

    @property
    def excludes_zero(self) -> bool:
        """Whether a difference is more than chance."""
        return self.low > 0 or self.high < 0


def estimate(scores: Sequence[float]) -> Estimate | None:
    """Return the mean of some scores; None where there are none."""
    if scores and set(scores) <= {0.0, 1.0}:
        return Estimate(fmean(scores), *wilson(sum(scores), len(scores)), len(scores))
    return bootstrapped(scores)


def macro(groups: Sequence[Sequence[float]]) -> Estimate | None:
    """Return the mean of the groups' means, as `bootstrapped` does where there are several groups."""
    groups = [group for group in groups if group]
    return bootstrapped(*groups) if len(groups) > 1 else estimate(groups[0] if groups else ())


def bootstrapped(*groups: Sequence[float]) -> Estimate | None:
    """Return the mean of the groups' means, of any numbers; numbers are redrawn within their groups."""
    if not any(groups):
        return None
    source = random.Random(0)
    redrawn = (fmean(fmean(source.choices(g, k=len(g))) for g in groups) for _ in range(RESAMPLES))
    means = sorted(redrawn)
    low, high = means[int(0.025 * RESAMPLES)], means[int(0.975 * RESAMPLES) - 1]
    return Estimate(fmean(map(fmean, groups)), low, high, sum(map(len, groups)))


def wilson(right: float, count: int) -> tuple[float, float]:
    """Wilson's score interval of a share."""
    share, spread = right / count, Z * Z / count
    middle = (share + spread / 2) / (1 + spread)
    half = Z / (1 + spread) * sqrt(share * (1 - share) / count + spread / (4 * count))
    # Rounding would leave the share itself out where it is 1: of 24 of 24, say.
    return max(0.0, min(share, middle - half)), min(1.0, max(share, middle + half))


def paired(scores: Mapping[str, float], others: Mapping[str, float]) -> Estimate | None:
    """Return by how much some scores are above others, example by example, where both have one."""
    return bootstrapped([score - others[name] for name, score in scores.items() if name in others])


def over_tasks(groups: Iterable[Sequence[float]]) -> Estimate | None:
    """Return the mean over tasks, without those that have few rows; None where no task has enough."""
    return macro([group for group in groups if len(group) >= FEW])
