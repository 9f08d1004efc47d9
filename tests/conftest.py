"""Shared set-up: quiet, deterministic, two threads."""

from __future__ import annotations

import os
import signal

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


if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # in the background: else so would what tests interrupt
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)
