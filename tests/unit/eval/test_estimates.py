"""Intervals: as printed in the papers they come from, and as often right as they say."""

from __future__ import annotations

import random
from itertools import product
from math import comb

import numpy as np
import pytest

from infinipot.eval import estimates
from infinipot.eval.estimates import bootstrapped, compared, estimate, macro, newcombe, paired, wilson

BOTH, ONE, OTHER, NEITHER = (True, True), (True, False), (False, True), (False, False)


def pairs(*counts: int) -> list[tuple[bool, bool]]:
    return [pair for pair, n in zip((BOTH, ONE, OTHER, NEITHER), counts, strict=True) for _ in range(n)]


def test_intervals() -> None:
    assert wilson(8, 10) == pytest.approx((0.4902, 0.9433), abs=1e-4)  # Wilson 1927, as statsmodels gives it
    assert wilson(10, 10) == pytest.approx((0.7225, 1.0), abs=1e-4)
    assert wilson(0, 20) == pytest.approx((0.0, 0.1611), abs=1e-4)
    for count in range(1, 200):
        for right in range(count + 1):
            low, high = wilson(right, count)
            assert 0 <= low <= right / count <= high <= 1
    graded = [0.2, 0.4, 0.9, 0.7, 0.5, 0.1, 0.3, 0.8] * 10
    found = estimate(graded)
    assert found == estimate(graded)  # seeded
    assert found.mean == pytest.approx(0.4875)
    spread = 1.96 * (sum((x - 0.4875) ** 2 for x in graded) / 80 / 80) ** 0.5
    assert found.low == pytest.approx(0.4875 - spread, abs=0.01)
    assert found.high == pytest.approx(0.4875 + spread, abs=0.01)
    assert estimate([]) is None
    mean = macro([[1.0, 1.0], [0.0] * 8, []])
    assert (mean.mean, mean.low, mean.high, mean.count) == (0.5, 0.5, 0.5, 10)
    assert bootstrapped([0.0, 1.0, 0.0, -1.0]).mean == 0


def test_an_interval_does_not_hang_on_the_order_of_rows_or_on_which_is_taken_from_which() -> None:
    source = random.Random(3)
    less = [source.gauss(-0.02, 0.2) for _ in range(200)]
    found = bootstrapped(less)
    assert found == bootstrapped(sorted(less))
    assert found.excludes_zero is (not found.low <= 0 <= found.high)
    turned = bootstrapped([-one for one in less])
    assert (turned.mean, turned.low, turned.high) == pytest.approx((-found.mean, -found.high, -found.low))
    assert bootstrapped(less, [0.1, 0.3]) == bootstrapped([0.3, 0.1], less[::-1])
    even = bootstrapped([0.1, -0.1, 0.3, -0.3])
    assert even.low == -even.high


def test_many_rows_are_redrawn_in_pieces_as_they_would_be_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(estimates, "AT_ONCE", 3000)
    groups = sorted(([0.5, 3.0] * 20, sorted(number % 7 / 3 for number in range(300))))
    source, means = np.random.default_rng(0), np.zeros(estimates.RESAMPLES)
    for group in groups:
        drawn = source.integers(len(group), size=(len(means), len(group)))
        means += np.array(sorted(group))[drawn].mean(1) / 2
    found = bootstrapped(*groups)
    assert (found.low, found.high) == pytest.approx(tuple(np.quantile(means, (0.025, 0.975))))


@pytest.mark.parametrize(
    ("counts", "mean", "low", "high"),
    [
        ((1, 1, 7, 12), -0.2857, -0.5069, -0.0256),
        ((59, 6, 16, 80), -0.0621, -0.1186, -0.0046),
        ((20, 12, 2, 16), 0.2, 0.0562, 0.3292),  # as in Newcombe 1998, method 10
    ],
)
def test_a_difference_of_shares_of_the_same_rows(
    counts: tuple[int, int, int, int], mean: float, low: float, high: float
) -> None:
    found = newcombe(pairs(*counts))
    assert (found.mean, found.low, found.high) == pytest.approx((mean, low, high), abs=1e-4)
    both, one, other, neither = counts
    turned = newcombe(pairs(both, other, one, neither))
    assert (turned.mean, turned.low, turned.high) == pytest.approx((-mean, -high, -low), abs=1e-4)


def test_rows_that_all_agree_do_not_exclude_every_difference() -> None:
    same = compared([(1.0, 1.0)] * 60)
    assert (same.low, same.high) == pytest.approx((-0.0602, 0.0602), abs=1e-4)
    four, five = (compared([(1.0, 0.0)] * more + [(1.0, 1.0)] * (60 - more)) for more in (4, 5))
    assert not four.excludes_zero  # by a sign test 4 of 4 are chance in one of eight
    assert five.excludes_zero
    assert bootstrapped([1.0] * 4 + [0.0] * 56).excludes_zero  # redrawn rows would say more than they know


@pytest.mark.parametrize("score", [1 / 3, -1 / 3, 2 / 3, -2 / 3])
def test_rounded_ends_have_the_mean_between_them(score: float) -> None:
    """A plot's error bar cannot be negative."""
    for found in (bootstrapped([score] * 3), bootstrapped([score])):
        assert found is not None
        assert found.low <= found.mean <= found.high


def test_right_and_wrong_are_compared_as_shares_and_what_is_graded_by_redrawn_rows() -> None:
    right = {"a": 1.0, "b": 0.0, "c": 1.0}
    assert paired(right, {"a": 0.0, "b": 0.0}) == newcombe([ONE, NEITHER])
    assert paired(right, {"a": 0.5, "b": 0.0}) == bootstrapped([0.5, 0.0])
    assert paired(right, {}) is None


@pytest.mark.parametrize("shares", [(0.9, 0.05, 0.03, 0.02), (0.6, 0.2, 0.1, 0.1), (0.3, 0.1, 0.3, 0.3)])
def test_the_truth_lies_within_nineteen_times_of_twenty(shares: tuple[float, ...]) -> None:
    """Every outcome of 24 rows, by how likely it is."""
    count, within, total = 24, 0.0, 0.0
    for both, one, other in product(range(count + 1), repeat=3):
        neither = count - both - one - other
        if neither < 0:
            continue
        ways = comb(count, both) * comb(count - both, one) * comb(count - both - one, other)
        counts = (both, one, other, neither)
        likely = ways * np.prod([share**n for share, n in zip(shares, counts, strict=True)])
        found = newcombe(pairs(*counts))
        total += likely
        within += likely * (found.low <= shares[1] - shares[2] <= found.high)
    assert total == pytest.approx(1)
    assert within > 0.945
