"""Means of scores and their intervals of 95%: Wilson's for right or wrong, else a seeded bootstrap.

Of differences by rows where all is right or wrong, Newcombe's: redrawn rows would say that 60 of 60 beside
60 of 60 exclude any difference, and that 60 beside 56 is more than chance.

A task with fewer than `FEW` rows enters no average over tasks: one row more or less would move it.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from math import sqrt
from statistics import fmean

import numpy as np

Z = 1.959964  # of 95%
RESAMPLES = 20_000  # ends of intervals then move by some hundredth of their length with another seed
FEW = 10
AT_ONCE = 4_000_000  # numbers that are redrawn at once, so that many rows take no more memory


@dataclass(frozen=True)
class Estimate:
    """A mean, the interval it lies in, and how many scores it is of."""

    mean: float
    low: float
    high: float
    count: int

    @property
    def excludes_zero(self) -> bool:
        """Whether a difference is more than chance; a handful of rows that all say the same are none."""
        return self.count >= FEW and (self.low > 0 or self.high < 0)

    @property
    def span(self) -> str:
        """The interval times 100, in words."""
        return f"{points(self.low)} to {points(self.high)}"


def points(share: float) -> str:
    """Return a share times 100; one that is not 0 is not printed as 0.0."""
    told = f"{100 * share:.1f}"
    return f"{100 * share:.1g}" if share and float(told) == 0 else told


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
    """Return the mean of the groups' means, of any numbers; numbers are redrawn within their groups.

    The order of the numbers makes no difference, and the interval of their opposites is the opposite one.
    """
    there = sorted(tuple(sorted(map(float, group))) for group in groups if group)
    if not there:
        return None
    opposite = sorted(tuple(sorted(-score for score in group)) for group in there)
    low, high = _interval(*max(there, opposite))
    if opposite > there:
        low, high = 0.0 - high, 0.0 - low
    return Estimate(round(fmean(map(fmean, there)), 9), low, high, sum(map(len, there)))  # as its ends


@lru_cache(maxsize=4096)
def _interval(*groups: tuple[float, ...]) -> tuple[float, float]:
    """Return the middle 95% of the redrawn means."""
    source, means = np.random.default_rng(0), np.zeros(RESAMPLES)
    for group in map(np.array, groups):
        step = max(1, AT_ONCE // len(group))
        for start in range(0, RESAMPLES, step):
            some = means[start : start + step]
            some += group[source.integers(len(group), size=(len(some), len(group)))].mean(1)
    low, high = np.quantile(means / len(groups), (0.025, 0.975)).round(9) + 0.0  # 0 is 0, and never -0
    return float(low), float(high)


def wilson(right: float, count: int) -> tuple[float, float]:
    """Wilson's score interval of a share."""
    share, spread = right / count, Z * Z / count
    middle = (share + spread / 2) / (1 + spread)
    half = Z / (1 + spread) * sqrt(share * (1 - share) / count + spread / (4 * count))
    # Rounding would leave the share itself out where it is 1: of 24 of 24, say.
    return max(0.0, min(share, middle - half)), min(1.0, max(share, middle + half))


def paired(scores: Mapping[str, float], others: Mapping[str, float]) -> Estimate | None:
    """Return by how much some scores are above others, example by example, where both have one."""
    return compared([(score, others[name]) for name, score in scores.items() if name in others])


def compared(pairs: Sequence[tuple[float, float]]) -> Estimate | None:
    """Return by how much the first of each pair is above the second."""
    if pairs and {score for pair in pairs for score in pair} <= {0.0, 1.0}:
        return newcombe([(bool(one), bool(other)) for one, other in pairs])
    return bootstrapped([one - other for one, other in pairs])


def newcombe(pairs: Sequence[tuple[bool, bool]]) -> Estimate:
    """Return a difference of two shares of the same rows, by Newcombe's square-and-add interval (1998)."""
    count, sides = len(pairs), (True, False)
    both, one, other, neither = (list(pairs).count(said) for said in product(sides, sides))
    first, second = (both + one) / count, (both + other) / count
    (low, high), (least, most) = wilson(both + one, count), wilson(both + other, count)
    # How the two go together; less of it where they do, since few rows make it look closer than it is.
    together: float = both * neither - one * other
    together = max(together - count / 2, 0) if together > 0 else together
    spread = (both + one) * (other + neither) * (both + other) * (one + neither)
    alike = together / sqrt(spread) if spread else 0.0

    def added(a: float, b: float) -> float:
        return sqrt(max(0.0, a * a - 2 * alike * a * b + b * b))

    less = first - second
    below, above = added(first - low, most - second), added(high - first, second - least)
    return Estimate(less, max(-1.0, less - below), min(1.0, less + above), count)


def over_tasks(groups: Iterable[Sequence[float]]) -> Estimate | None:
    """Return the mean over tasks, without those that have few rows; None where no task has enough."""
    return macro([group for group in groups if len(group) >= FEW])
