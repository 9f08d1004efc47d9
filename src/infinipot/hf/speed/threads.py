"""How many threads compute on a CPU: fewer while other programs keep its cores busy.

A product waits for the slowest of its threads, so one that has to share its core with another program holds
up all of them; without it only its own part of the work is lost. How busy others are is seen in the cores'
times, less this process's own. A number of threads that a person has named, here or by OMP_NUM_THREADS, is
kept; so is torch's where a container has a share of the cores, since the cores' times are not its own.
"""

import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from math import ceil
from pathlib import Path

import torch

from infinipot.errors import check

LOOK = 0.25  # seconds between two looks at what others take
NAMED = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")  # variables by which a person names a number
QUOTA = Path("/sys/fs/cgroup/cpu.max")  # what a container may take of the cores
BUSY, CALM = 0.4, 0.2  # of a core that others take: it is theirs from the one on, ours again below the other


@dataclass(frozen=True)
class Times:
    """Seconds: a clock, what all programs have computed on the cores we may use, and what we have."""

    clock: float
    all: float
    own: float

    def others_since(self, before: "Times") -> float:
        """How many cores other programs have kept busy since then."""
        passed = max(self.clock - before.clock, 1e-9)
        return max(0.0, (self.all - before.all - (self.own - before.own)) / passed)


def times() -> Times:
    """Return the times until now; a program of lower priority than ours takes no core from us."""
    import psutil

    cores = psutil.cpu_times(percpu=True)
    ours = [one for index, one in enumerate(cores) if index in _cores()]
    yields = hasattr(os, "nice") and os.nice(0) > 0  # ours has a lower priority itself
    names = ("user", "system", *(("nice",) if yields else ()))
    computed = sum(getattr(one, name, 0.0) for one in ours for name in names)
    return Times(time.monotonic(), computed, time.process_time())


def _cores() -> set[int]:
    """The cores this process may run on."""
    return os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set(range(os.cpu_count() or 1))


def _given() -> bool:
    """Say whether a variable names a number, or a container gives this process a share of its cores."""
    if any(map(os.environ.get, NAMED)):
        return True
    try:
        share = QUOTA.read_text().split()[0]
    except (OSError, IndexError):
        return False
    return share != "max"


class Watch:
    """Keeps torch's number of threads at what other programs leave of the cores, up to `most`.

    Torch counts threads for each thread that calls it, so every one of them is set when it looks.
    """

    def __init__(self, most: int, cores: int, read: Callable[[], Times] = times) -> None:
        self.most = self.chosen = most
        self._cores, self._read, self._before = cores, read, read()
        self._ever, self._here = {most}, threading.local()  # what was set, at all and in the calling thread

    def look(self) -> None:
        """See what others take and set the threads of the calling thread's products accordingly."""
        now, set_to = self._read(), torch.get_num_threads()
        ours = {self._here.count} if hasattr(self._here, "count") else self._ever  # a new thread inherits
        if set_to not in ours:  # somebody else has set it: that counts from now on
            self.most = self.chosen = set_to
        others, self._before = now.others_since(self._before), now
        fewer, more = (self._left(others, margin) for margin in (BUSY, CALM))
        self.chosen = min(self.chosen, fewer) if fewer < self.chosen else max(self.chosen, more)
        if self.chosen != set_to:
            torch.set_num_threads(self.chosen)
        self._here.count = self.chosen
        self._ever.add(self.chosen)

    def _left(self, others: float, margin: float) -> int:
        """Threads that have a core each, where less than `margin` of a core in others' hands is none."""
        return max(1, min(self.most, self._cores - ceil(max(0.0, others - margin))))


class _Following:
    """The process's watch, if there is one, and when it looks next."""

    watch: Watch | None = None
    next = 0.0
    looking = threading.Lock()


def follow() -> None:
    """Look at what others take, if it is time: called between a model's layers, so nearly for nothing."""
    now = time.monotonic()
    if _Following.watch is None or now < _Following.next or not _Following.looking.acquire(blocking=False):
        return
    try:
        if now >= _Following.next:  # nobody has looked meanwhile
            _Following.next = now + LOOK
            _Following.watch.look()
    except Exception:  # whatever it is, no answer is lost for it: the threads stay as they are
        _Following.watch = None
    finally:
        _Following.looking.release()


def use_threads(count: int | None, device: torch.device) -> None:
    """Compute with so many threads on a CPU; None is torch's number, or fewer while others are busy."""
    if count is not None:
        check(count >= 1, "threads", count, "use 1 or more")
        torch.set_num_threads(count)
        _Following.watch = None
    elif device.type == "cpu" and _Following.watch is None and not _given():
        with suppress(ImportError, OSError, NotImplementedError):  # where nobody can say, as torch has it
            _Following.watch = Watch(torch.get_num_threads(), len(_cores()))
            _Following.next = time.monotonic() + LOOK
