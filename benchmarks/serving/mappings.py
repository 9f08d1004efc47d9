"""Where a process's resident memory is: malloc's, other anonymous memory, mapped files, a card's driver."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

_HEAD = re.compile(r"([0-9a-f]+)-([0-9a-f]+) \S+ \S+ \S+ \S+ *(.*)")
ARENA = 64 * 2**20  # malloc's arenas begin at multiples of it, and are not larger


def resident(pid: int) -> dict[str, int]:
    """Return resident bytes by kind, and how many mappings, threads and open files there are."""
    found: Counter[str] = Counter(dict.fromkeys(("heap", "arenas", "anonymous", "files", "devices"), 0))
    kind = ""
    for line in Path(f"/proc/{pid}/smaps").read_text().splitlines():
        if head := _HEAD.fullmatch(line):
            kind = _kind(int(head[1], 16), int(head[2], 16), head[3])
            found["mappings"] += 1
        elif line.startswith("Rss:"):
            found[kind] += 1024 * int(line.split()[1])
    found["threads"] = len(list(Path(f"/proc/{pid}/task").iterdir()))
    found["open_files"] = len(list(Path(f"/proc/{pid}/fd").iterdir()))
    return dict(found)


def _kind(start: int, end: int, name: str) -> str:
    if name == "[heap]":
        return "heap"
    if name.startswith("/dev/") and not name.startswith("/dev/shm"):
        return "devices"
    if name.startswith("/"):
        return "files"
    inside = start // ARENA == (end - 1) // ARENA
    return "arenas" if not name and inside and not start % ARENA else "anonymous"


def flat(sizes: list[int]) -> dict[str, Any]:
    """Memory in tenths of the time: medians, and how much the last differs from the second."""
    tenth = max(1, len(sizes) // 10)
    medians = [
        sorted(part)[len(part) // 2] for k in range(10) if (part := sizes[k * tenth : (k + 1) * tenth])
    ]
    second = medians[min(1, len(medians) - 1)] if medians else 0
    growth = round(medians[-1] / second - 1, 4) if second else 0.0
    return {"by_tenth": medians, "growth": growth, "peak": max(sizes, default=0)}
