from __future__ import annotations

import platform
import subprocess
import sys

import pytest

CODE = """
import psutil, torch
from infinipot.models import memory
if {given}:
    memory.give_back()
passing = torch.ones(30_000_000 // 4)
del passing  # from now on glibc by itself would keep blocks up to that size
before = psutil.Process().memory_info().rss
passing, stays = [], []
for _ in range(5):
    passing.append(torch.ones(12_000_000 // 4))
    stays.append(torch.ones(1_000_000 // 4))
del passing
print(psutil.Process().memory_info().rss - before)
"""


def grown(given: bool) -> int:
    """Bytes that a process holds more after large blocks passed and small ones stayed."""
    code = [sys.executable, "-c", CODE.format(given=given)]
    return int(subprocess.run(code, check=True, capture_output=True).stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries have other ways")
def test_freed_blocks_are_given_back() -> None:
    assert grown(given=True) < 15_000_000 < 50_000_000 < grown(given=False)
