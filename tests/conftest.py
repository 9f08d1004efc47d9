"""Shared set-up: quiet, deterministic, two threads."""

from __future__ import annotations

import pytest
import torch

torch.set_num_threads(2)


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)
