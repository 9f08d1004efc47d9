"""Tests wait for a state, never for a time: a busy machine is slow, not wrong."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

import anyio

STEP_S = 0.02
T = TypeVar("T")


def eventually(true: Callable[[], bool], seconds: float = 60) -> float:
    """Wait until something is true; return how long that took."""
    started = time.monotonic()
    while not true():
        assert time.monotonic() - started < seconds, "what was waited for did not come"
        time.sleep(STEP_S)
    return time.monotonic() - started


async def comes_true(true: Callable[[], bool], seconds: float = 60) -> None:
    """Wait in an event loop until something is true."""
    started = time.monotonic()
    while not true():
        assert time.monotonic() - started < seconds, "what was waited for did not come"
        await anyio.sleep(STEP_S)


async def within_a_minute(work: Callable[[], Awaitable[T]]) -> T:
    """Do some work that would wait for ever if it went wrong."""
    with anyio.fail_after(60):
        return await work()
