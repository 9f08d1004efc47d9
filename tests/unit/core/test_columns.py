from __future__ import annotations

import pytest
import torch

from infinipot.core.columns import COLUMNS, PAGED, zeros
from infinipot.core.pot import LayerSpec, Pot

CPU = torch.device("cpu")


@pytest.mark.parametrize("rows", [3, PAGED])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int8, torch.long])
def test_columns_are_zeros_of_their_own(rows: int, dtype: torch.dtype) -> None:
    first, second = zeros((1, 2, rows, 4), dtype, CPU), zeros((1, 2, rows, 4), dtype, CPU)
    assert torch.equal(first, torch.zeros(1, 2, rows, 4, dtype=dtype))
    first[:, 1, -1] = 7
    assert (int(first.sum()), int(second.sum())) == (28, 0)
    assert first.is_contiguous()


def test_every_column_has_its_type_and_width() -> None:
    keys, values = torch.ones(1, 2, 3, 8, dtype=torch.bfloat16), torch.ones(1, 2, 3, 6, dtype=torch.bfloat16)
    for column in COLUMNS:
        for slots in (5, PAGED):
            made = column.empty(keys, values, slots)
            width = {"keys": (8,), "values": (6,), "": ()}[column.like]
            assert made.shape == (1, 2, slots, *width)
            assert made.dtype == (column.dtype or torch.bfloat16)


def test_what_is_not_written_takes_no_memory() -> None:
    """A pot for a long text that holds a short one."""
    psutil = pytest.importorskip("psutil")
    process = psutil.Process()
    before = process.memory_info().rss
    held = zeros((1, 2, 100_000, 128), torch.float32, CPU)  # 102 MB
    held[:, :, :100] = 1
    assert process.memory_info().rss - before < 20_000_000


def test_an_occupied_pot_takes_all_its_memory_at_once() -> None:
    psutil = pytest.importorskip("psutil")
    pot = Pot([LayerSpec(torch.ones(4))], capacity=60_000, keep=30_000)
    with pot.writing():
        pot.append(0, torch.ones(1, 2, 3, 64), torch.ones(1, 2, 3, 64))
    process = psutil.Process()
    before = process.memory_info().rss
    pot.occupy()
    assert process.memory_info().rss - before > pot.nbytes // 2 > 30_000_000
    assert torch.equal(pot.pot_layers[0].keys[:, :, :3], torch.ones(1, 2, 3, 64))
