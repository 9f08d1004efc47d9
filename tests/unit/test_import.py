from __future__ import annotations

import os
import subprocess
import sys

import pytest


@pytest.mark.parametrize(("given", "found"), [(None, "PASSIVE 5000"), ("ACTIVE", "ACTIVE None")])
def test_waiting_threads_sleep_soon_unless_told_otherwise(given: str | None, found: str) -> None:
    ours = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")
    env = {name: value for name, value in os.environ.items() if name not in ours}
    if given:
        env["OMP_WAIT_POLICY"] = given
    script = f"import infinipot, os; print(*(os.environ.get(name) for name in {ours}))"
    assert subprocess.check_output([sys.executable, "-c", script], env=env, text=True).strip() == found
