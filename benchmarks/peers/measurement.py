"""Rows of peers that run in interpreters of their own."""

from __future__ import annotations

import statistics
from dataclasses import dataclass

from infinipot.bench.plan import SKIP
from infinipot.bench.systems import Measurement
from infinipot.common.sizes import short


@dataclass(frozen=True)
class PeerMeasurement(Measurement):
    """A row of a system that may have loaded other weights than ours."""

    weight_bytes: int | None = None
    parameters: int | None = None


def median_ms(steps: list[float]) -> float:
    """Return the milliseconds of a step, where the first lead to tokens that do not count."""
    return 1000 * statistics.median(steps[SKIP - 1 :])


def beyond(length: int, trained: int) -> str:
    """Return a remark on a text longer than the model was trained for."""
    return f"beyond its trained window of {short(trained)}" if length > trained > 0 else ""
