"""In what two runs differ, and in what they only seem to."""

from __future__ import annotations

import pytest

from infinipot.eval.manifest import Manifest, differences


def told(**cell: object) -> Manifest:
    return {"cells": {"infinipot 96": {"capacity": 96, **cell}}}


@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        ({}, {"units": "slots"}, []),
        ({"units": "slots"}, {}, []),
        ({}, {"units": "sentences"}, ["cell 'infinipot 96' units (slots and sentences)"]),
        ({"units": "sentences"}, {}, ["cell 'infinipot 96' units (sentences and slots)"]),
        ({}, {"capacity": 64}, ["cell 'infinipot 96' capacity (96 and 64)"]),
    ],
)
def test_a_cell_that_tells_no_units_had_slots(old: dict, new: dict, found: list[str]) -> None:
    assert differences(told(**old), told(**new)) == found
    assert differences(told(**old), told(**new), cells=False) == []
