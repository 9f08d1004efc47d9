"""What tests of compiled attention need of a machine."""

from __future__ import annotations

import pytest


@pytest.fixture
def compiling() -> None:
    """Skip where nothing can be compiled: what llvmlite refuses to compile here is a failure, not a skip."""
    binding = pytest.importorskip("llvmlite.binding", reason="no llvmlite")
    try:
        binding.check_jit_execution()
    except OSError as error:  # a sandbox in which memory may not become executable
        pytest.skip(str(error))
