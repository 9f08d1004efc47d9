"""Means with 95% confidence intervals: Wilson's for right-or-wrong scores, a seeded bootstrap for others."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import fmean

Z = 1.959964  # of 95%
RESAMPLES = 1000


@dataclass(frozen=True)
class Estimate:
    """A mean, the interval it lies in, and how many scores it is of."""

    mean: float
    low: float
    high: float
    count: int


def estimate(scores: Sequence[float]) -> Estimate | None:
    """Return the mean of some scores; None where there are none."""
    if not scores:
        return None
    if set(scores) <= {0.0, 1.0}:
        return Estimate(fmean(scores), *wilson(sum(scores), len(scores)), len(scores))
    return bootstrapped(scores)


def bootstrapped(scores: Sequence[float]) -> Estimate | None:
    """Return the mean of any numbers, which are redrawn: of differences, say."""
    if not scores:
        return None
    return Estimate(fmean(scores), *_bootstrap(lambda source: _redrawn(scores, source)), len(scores))


def macro(groups: Sequence[Sequence[float]]) -> Estimate | None:
    """Return the mean of the groups' means; scores are redrawn within their groups."""
    groups = [group for group in groups if group]
    if len(groups) < 2:
        return estimate(groups[0]) if groups else None
    bounds = _bootstrap(lambda source: fmean(_redrawn(group, source) for group in groups))
    return Estimate(fmean(map(fmean, groups)), *bounds, sum(map(len, groups)))


def wilson(right: float, count: int) -> tuple[float, float]:
    """Wilson's score interval of a share."""
    share, spread = right / count, Z * Z / count
    middle = (share + spread / 2) / (1 + spread)
    half = Z / (1 + spread) * sqrt(share * (1 - share) / count + spread / (4 * count))
    # Rounding would leave the share itself out where it is 1: of 24 of 24, say.
    return max(0.0, min(share, middle - half)), min(1.0, max(share, middle + half))


def _redrawn(scores: Sequence[float], source: random.Random) -> float:
    return fmean(source.choices(scores, k=len(scores)))


def _bootstrap(draw: Callable[[random.Random], float]) -> tuple[float, float]:
    source = random.Random(0)
    drawn = sorted(draw(source) for _ in range(RESAMPLES))
    return drawn[int(0.025 * RESAMPLES)], drawn[int(0.975 * RESAMPLES) - 1]
