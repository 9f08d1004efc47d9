"""A command of `infinipot` that writes down what it holds, every two seconds, for a soak that asks why.

    python benchmarks/serving/looked_into.py inside.jsonl serve --model smollm2

`SOAK_SET=module:NAME=number` sets a constant before the command begins, to compare with it otherwise.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import json
import os
import runpy
import sys
import threading
import time
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parents[2] / "src")]
FIELDS = ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks")


class Mallinfo(ctypes.Structure):
    """glibc's `struct mallinfo2`."""

    _fields_ = [(name, ctypes.c_size_t) for name in (*FIELDS, "keepcost")]


def held() -> dict[str, Any]:
    """Return what malloc gave out and holds free, Python's blocks, and torch's pinned memory and graphs."""
    found: dict[str, Any] = {"blocks": sys.getallocatedblocks(), "objects": sum(gc.get_count())}
    info = ctypes.CDLL(None).mallinfo2
    info.restype = Mallinfo
    told = info()
    found |= {"malloc_used": told.uordblks + told.hblkhd, "malloc_free": told.fordblks}
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        pinned = torch.cuda.host_memory_stats()
        found |= {f"pinned_{name.split('.')[0]}": pinned.get(name) for name in ("allocated_bytes.current",)}
        found["torch_reserved"] = torch.cuda.memory_reserved()
    if (steps := sys.modules.get("infinipot.reading.step_group")) is not None:
        found["decode_graphs"] = sum(len(one.captured) for one in steps.GRAPHS.values())
    if (frames := sys.modules.get("torch._dynamo.utils")) is not None:
        found["compiled"] = int(frames.counters["stats"].get("unique_graphs", 0))
    return found


def _write(path: str) -> None:
    began = time.monotonic()
    with Path(path).open("a") as file:
        while True:
            time.sleep(2)
            try:
                line = held()
            except Exception as error:  # what cannot be told must not end what is looked into
                line = {"failed": repr(error)}
            file.write(json.dumps({"s": round(time.monotonic() - began, 1), **line}) + "\n")
            file.flush()


def main() -> None:
    path, *command = sys.argv[1:]
    for told in filter(None, os.environ.get("SOAK_SET", "").split(",")):
        module, _, value = told.partition(":")
        name, _, number = value.partition("=")
        setattr(importlib.import_module(module), name, int(number))
    threading.Thread(target=_write, args=(path,), daemon=True).start()
    sys.argv = ["infinipot", *command]
    runpy.run_module("infinipot.cli.main", run_name="__main__")


if __name__ == "__main__":
    main()
