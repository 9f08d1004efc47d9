"""Whether a model fits: what its weights need, what this process may still take, and the most it took.

Reads file headers and the operating system's counters; loads no weights and does not know where a model
came from. The estimate is weights plus what the caller asks for on top; activations are small beside both.
"""

import ctypes
import json
import math
import os
import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from safetensors import safe_open

from infinipot.common.extras import needed_for
from infinipot.common.sizes import in_bytes
from infinipot.errors import ModelError

OWN_PAGES = 8 << 20  # bytes from which on a block has pages of its own: with less, small models read slower
_CAST = ("F64", "F32", "F16", "BF16")  # what loading casts; packed integers stay as they are
# What control groups call their limit, their use, and the file cache in it, by version.
_GROUP_FILES = {
    1: ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file", "total_active_file"),
    2: ("memory.max", "memory.current", "inactive_file", "active_file"),
}


def folder_bytes(folder: Path, itemsize: float) -> int:
    """Return what a model folder's weights take when its floats are loaded at `itemsize` bytes each."""
    index, names = folder / "model.safetensors.index.json", {"model.safetensors"}
    if index.is_file():  # the shards a loader would read: folders can hold the same weights twice
        names = set(json.loads(index.read_text("utf-8"))["weight_map"].values())
    if shards := [folder / name for name in names if (folder / name).is_file()]:
        return sum(_file_bytes(shard, itemsize) for shard in shards)
    # Pickled weights have no cheap header; nearly all are stored in two bytes a value.
    return int(sum(path.stat().st_size for path in folder.glob("pytorch_model*.bin")) * itemsize / 2)


def _file_bytes(path: Path, itemsize: float) -> int:
    with safe_open(path, "np") as opened:
        found = [opened.get_slice(name) for name in opened.keys()]  # noqa: SIM118  no mapping
        return int(sum(math.prod(one.get_shape()) * _width(one.get_dtype(), itemsize) for one in found))


def _width(dtype: str, itemsize: float) -> float:
    """Bytes of one value once it is loaded: I32 has four, F8_E4M3 and BOOL one."""
    bits = re.match(r"[A-Z]+(\d+)", dtype)
    return itemsize if dtype in _CAST else max(1, int(bits[1]) // 8) if bits else 1


def available(device: str = "cpu") -> int:
    """Return the bytes this process may still allocate on a device."""
    if device.startswith("cuda"):
        import torch

        return int(torch.cuda.mem_get_info(torch.device(device))[0])
    with needed_for("looking at free memory", "models"):
        import psutil
    return max(0, min(psutil.virtual_memory().available, *group_room(), *_address_room()))


def group_room(proc: Path = Path("/proc/self/cgroup"), root: Path = Path("/sys/fs/cgroup")) -> Iterator[int]:
    """Yield limit minus use of every control group above this process, version 2 and 1."""
    lines: Iterable[str] = ()
    with suppress(OSError):
        lines = proc.read_text("utf-8").splitlines()
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        base = root / "memory" if controllers else root
        group = base / path.strip("/")
        for folder in (group, *group.parents):
            if folder.is_relative_to(base):
                yield from _room_of(folder, *_GROUP_FILES[1 if controllers else 2])


def _room_of(folder: Path, limit: str, use: str, *reclaimable: str) -> Iterator[int]:
    with suppress(OSError, ValueError):  # ValueError: there is no limit, which is written "max"
        allowed, used = (int((folder / name).read_text("utf-8")) for name in (limit, use))
        stat = dict(line.split() for line in (folder / "memory.stat").read_text("utf-8").splitlines())
        # File cache counts as used but is given up on demand; a fresh pull leaves gigabytes of it.
        yield allowed - used + sum(int(stat.get(name, 0)) for name in reclaimable)


def _address_room() -> Iterator[int]:
    """Yield what `ulimit -v` leaves, where there is such a limit."""
    if sys.platform == "win32":
        return
    import resource

    import psutil

    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    if soft != resource.RLIM_INFINITY:
        yield soft - psutil.Process().memory_info().vms


def require(what: str, needed: int, free: int, advice: str, *, how: str = "") -> None:
    """Raise a ModelError that says what to do when `needed` bytes are not free."""
    if needed > free:
        raise ModelError(f"{what} needs {in_bytes(needed)}{how} and {in_bytes(free)} is free", remedy=advice)


def trim() -> None:
    """Give memory that was freed back to the system, where the C library is glibc."""
    with suppress(OSError, AttributeError, TypeError):  # other systems have no such function
        ctypes.CDLL(None).malloc_trim(0)


def give_back() -> None:
    """Give memory that was freed back to the system, now and from now on, where the C library is glibc.

    It keeps what is freed among small things that live on, and cannot use such gaps again for aligned blocks
    of the same size: they grow with every layer. Large blocks get pages of their own instead.
    """
    with suppress(OSError, AttributeError, TypeError):  # other systems have no such functions
        trim()
        library = ctypes.CDLL(None)
        if "MALLOC_MMAP_THRESHOLD_" not in os.environ:
            library.mallopt(-3, OWN_PAGES)  # M_MMAP_THRESHOLD
            library.mallopt(-1, 2 * OWN_PAGES)  # M_TRIM_THRESHOLD: the top of the heap that is kept


def peak_memory_bytes(device: str = "cpu") -> int:
    """Most bytes held so far: on a GPU what torch allocated there, otherwise the resident set."""
    if device.startswith("cuda"):
        import torch

        return torch.cuda.max_memory_allocated(device)
    if sys.platform == "win32":  # no resource module there
        import psutil

        return int(psutil.Process().memory_info().peak_wset)
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024  # macOS counts bytes, Linux kibibytes


def forget_peak() -> None:
    """Begin anew with what `recent_peak_bytes` tells, where the system can."""
    with suppress(OSError):  # Linux only
        Path("/proc/self/clear_refs").write_text("5", "ascii")


def recent_peak_bytes() -> int:
    """Most bytes resident since `forget_peak`, or ever where the system tells no more than that."""
    with suppress(OSError, StopIteration):
        lines = Path("/proc/self/status").read_text("ascii").splitlines()
        return 1024 * int(next(line for line in lines if line.startswith("VmHWM")).split()[1])
    return peak_memory_bytes()
