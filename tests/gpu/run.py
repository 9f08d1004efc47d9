"""Runs the tests of this folder where there is no pytest: `python tests/gpu/run.py [part of a name ...]`."""

from __future__ import annotations

import importlib
import sys
import time
import traceback
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent), str(HERE.parents[1] / "src")]


def tried(module: str, name: str) -> tuple[str, str]:
    """Run one test; return its outcome and, of one that failed, where."""
    try:
        getattr(importlib.import_module(module), name)()
    except Exception:
        return "FAILED", traceback.format_exc()
    return "passed", ""


def main(wanted: list[str]) -> int:
    """Run every test whose name has one of these parts in it, or all."""
    import torch

    if not torch.cuda.is_available():
        print("skipped: needs a CUDA device")  # noqa: T201
        return 0
    failed = 0
    for path in sorted(HERE.glob("test_*.py")):
        module = f"gpu.{path.stem}"
        try:
            names = [name for name in vars(importlib.import_module(module)) if name.startswith("test_")]
        except ModuleNotFoundError as missing:
            print(f"skipped  {module}: this machine has no {missing.name}")  # noqa: T201
            continue
        for name in names:
            if not wanted or any(part in f"{module}.{name}" for part in wanted):
                started = time.perf_counter()
                outcome, why = tried(module, name)
                failed += outcome == "FAILED"
                print(f"{outcome}  {time.perf_counter() - started:6.1f} s  {module}.{name}\n{why}", end="")  # noqa: T201
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
