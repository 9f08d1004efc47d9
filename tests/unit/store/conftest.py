"""What several tests of the store need."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Give a disk of two megabytes."""
    if os.geteuid() != 0 or sys.platform != "linux":
        pytest.skip("mounting needs root")
    disk = tmp_path / "disk"
    disk.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(disk)], capture_output=True)
    if done.returncode:
        pytest.skip("this machine lets nobody mount")
    try:
        yield disk
    finally:
        subprocess.run(["umount", str(disk)], check=True)
