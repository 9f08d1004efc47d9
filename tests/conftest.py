"""Shared set-up: quiet, deterministic, one thread a process; what a test needs and this machine has not."""

from __future__ import annotations

import os
import signal

# Toy models are too small to share between threads, and threads that wait for each other make a busy machine
# several times slower. `make test-long` asks for two: it runs real models.
THREADS = os.environ.setdefault(
    "OMP_NUM_THREADS", "1"
)  # before torch is imported; tests' processes inherit it

import pytest  # noqa: E402
import torch  # noqa: E402
from hypothesis import settings  # noqa: E402

torch.set_num_threads(int(THREADS))
if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = (
        "1"  # read when triton is first imported: kernels are tested all the same
    )
settings.register_profile("steady", deadline=None)  # a busy machine is not a failure
settings.load_profile("steady")


if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # in the background: else so would what tests interrupt
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip what this machine cannot run, with the reason."""
    for marker, missing in MISSING.items():
        if item.get_closest_marker(marker) and (reason := missing()):
            pytest.skip(reason)


def _no_bfloat16() -> str | None:
    from infinipot.hf.speed.products import has_bfloat16

    return None if has_bfloat16() else "needs a processor that multiplies bfloat16 (AVX512_BF16 or AMX)"


def _no_chromium() -> str | None:
    from e2e.browsers import CHROMIUM, MISSING

    return None if CHROMIUM else MISSING


def _no_gpu() -> str | None:
    return None if torch.cuda.is_available() else "needs a CUDA device"


MISSING = {"needs_bfloat16": _no_bfloat16, "browser": _no_chromium, "gpu": _no_gpu}
