"""Every script of `benchmarks/` can be imported: what it uses of the package is there."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[3] / "benchmarks"
LOCUST = "visitors"  # is run by locust, which patches the whole process
NAMES = sorted(path.stem for path in FOLDER.glob("*.py") if path.stem != LOCUST)


@pytest.mark.parametrize("name", NAMES)
def test_a_script_finds_what_it_imports(name: str) -> None:
    found = import_module(name)
    assert Path(found.__file__ or "").parent == FOLDER
    assert found.__doc__
