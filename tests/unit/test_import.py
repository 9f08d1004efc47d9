from __future__ import annotations

import os
import subprocess
import sys

import pytest


@pytest.mark.parametrize(("given", "found"), [(None, "PASSIVE"), ("ACTIVE", "ACTIVE")])
def test_waiting_threads_sleep_unless_told_otherwise(given: str | None, found: str) -> None:
    env = {name: value for name, value in os.environ.items() if name != "OMP_WAIT_POLICY"}
    if given:
        env["OMP_WAIT_POLICY"] = given
    script = "import infinipot, os; print(os.environ['OMP_WAIT_POLICY'])"
    assert subprocess.check_output([sys.executable, "-c", script], env=env, text=True).strip() == found
