"""Capturing graphs beside other threads.

While a thread captures, CUDA refuses that anything waits for the whole device, and in its strictest mode
that any thread asks for memory: either would end the capture, or the other thread's work. So graphs are
captured in the mode that looks at the capturing thread alone, and threads that wait for the card, or give
memory back to it, do so only while nothing is captured. Copies to the host go over a stream of their own: on
the model's stream each would wait for all that the model has been given to do.
"""

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor

MODE = "thread_local"
_lock = threading.RLock()


@contextmanager
def apart_from_capture() -> Iterator[None]:
    """Around work on a card that may wait for it or free memory: no graph is captured meanwhile."""
    with _lock:
        yield


@contextmanager
def unless_capturing() -> Iterator[bool]:
    """Say whether nothing is being captured, and nothing will be until the end; never waits."""
    free = _lock.acquire(blocking=False)
    try:
        yield free
    finally:
        if free:
            _lock.release()


def to_device(tensor: Tensor, device: torch.device) -> Tensor:
    """Copy a tensor of the host to a device, without waiting for what the device has been given to do."""
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)


class Pace:
    """Keeps the host from running far ahead of a card."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._before: torch.cuda.Event | None = None  # when the last forward but one is done

    def keep(self, last: bool = False) -> None:
        """Wait until the device is at most one forward behind, or not at all: then it never waits for us."""
        if self._device.type == "cuda":
            before, self._before = self._before, torch.cuda.Event()  # type: ignore[no-untyped-call]
            self._before.record()
            for event in (before, self._before) if last else (before,):
                if event is not None:
                    event.synchronize()


def to_host(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return copies on the host, made by any thread while the model goes on with something else."""
    devices = {tensor.device for tensor in tensors.values() if tensor.device.type == "cuda"}
    if not devices:
        return dict(tensors)
    with apart_from_capture():
        for device in devices:
            side = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]  # torch has no types here
            side.wait_stream(torch.cuda.default_stream(device))
            with torch.cuda.stream(side):
                tensors = {k: v.cpu() if v.device == device else v for k, v in tensors.items()}
    return dict(tensors)
