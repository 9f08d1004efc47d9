"""Shared set-up: quiet, deterministic, two threads."""

from __future__ import annotations

import os

import pytest
import torch
from hypothesis import settings

torch.set_num_threads(2)
if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = (
        "1"  # kernels are tested all the same; read when triton is first imported
    )
settings.register_profile("steady", deadline=None)  # a busy machine is not a failure
settings.load_profile("steady")


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)
