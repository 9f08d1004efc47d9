"""Whether a model fits: what its weights need, and what this process may still take.

Reads file headers and the operating system's counters; it loads no weights
and does not know where a model came from. The estimate is weights plus what
the caller asks for on top; activations are small beside both.
"""

from __future__ import annotations

import json
import math
import struct
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import psutil

from infinipot.errors import ModelError

_FLOATS = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2}
_OTHERS = {"I64": 8, "I32": 4, "I16": 2, "I8": 1, "U64": 8, "U32": 4, "U16": 2, "U8": 1, "BOOL": 1}


def folder_bytes(folder: Path, itemsize: int) -> int:
    """Return what a model folder's weights take when its floats are loaded at `itemsize` bytes each."""
    shards = list(_safetensors(folder))
    if shards:
        return sum(_file_bytes(shard, itemsize) for shard in shards)
    # Pickled weights have no cheap header; nearly all are stored in two bytes a value.
    return sum(path.stat().st_size for path in folder.glob("pytorch_model*.bin")) * itemsize // 2


def _safetensors(folder: Path) -> Iterator[Path]:
    """Yield the shards a loader would read: folders can hold the same weights twice."""
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        names: Iterable[str] = set(json.loads(index.read_text("utf-8"))["weight_map"].values())
    else:
        names = ["model.safetensors"]
    yield from (folder / name for name in names if (folder / name).is_file())


def _file_bytes(path: Path, itemsize: int) -> int:
    with path.open("rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(length))
    header.pop("__metadata__", None)
    return sum(_tensor_bytes(entry, itemsize) for entry in header.values())


def _tensor_bytes(entry: dict[str, list[int] | str], itemsize: int) -> int:
    # Packed integers stay as they are; only floats are cast on loading.
    kind, shape = str(entry["dtype"]), [int(n) for n in entry["shape"]]
    return math.prod(shape) * (itemsize if kind in _FLOATS else _OTHERS.get(kind, 1))


def available(device: str = "cpu") -> int:
    """Return the bytes this process may still allocate on a device."""
    if device.startswith("cuda"):
        import torch

        return int(torch.cuda.mem_get_info(torch.device(device))[0])
    limits = [psutil.virtual_memory().available, *_cgroup_room(), *_address_room()]
    return max(0, min(limits))


def _cgroup_room(
    proc: Path = Path("/proc/self/cgroup"), root: Path = Path("/sys/fs/cgroup")
) -> Iterator[int]:
    """Yield limit minus use of every control group above this process, version 2 and 1."""
    try:
        lines = proc.read_text("utf-8").splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            base, names = root, ("memory.max", "memory.current", "inactive_file", "active_file")
        elif "memory" in controllers.split(","):
            base = root / "memory"
            names = (
                "memory.limit_in_bytes",
                "memory.usage_in_bytes",
                "total_inactive_file",
                "total_active_file",
            )
        else:
            continue
        group = base / path.strip("/")
        for folder in (group, *group.parents):
            if folder.is_relative_to(base):
                yield from _group_room(folder, *names)


def _group_room(folder: Path, limit: str, use: str, *reclaimable: str) -> Iterator[int]:
    try:
        allowed = (folder / limit).read_text("utf-8").strip()
        used = int((folder / use).read_text("utf-8"))
        stat = dict(line.split() for line in (folder / "memory.stat").read_text("utf-8").splitlines())
    except (OSError, ValueError):
        return
    if allowed != "max":
        # File cache counts as used but is given up on demand; a fresh pull leaves gigabytes of it.
        yield int(allowed) - used + sum(int(stat.get(name, 0)) for name in reclaimable)


def _address_room() -> Iterator[int]:
    """Yield what `ulimit -v` leaves, where there is such a limit."""
    if sys.platform == "win32":
        return
    import resource

    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    if soft != resource.RLIM_INFINITY:
        yield soft - psutil.Process().memory_info().vms


def require(what: str, needed: int, free: int, advice: str, *, how: str = "") -> None:
    """Raise a ModelError that says what to do when `needed` bytes are not free."""
    if needed > free:
        raise ModelError(f"{what} needs {gigabytes(needed)}{how} and {gigabytes(free)} is free: {advice}")


def gigabytes(count: int) -> str:
    """Write a number of bytes the way people read it."""
    return f"{count / 1e9:.1f} GB" if count >= 1e8 else f"{count / 1e6:.0f} MB"
