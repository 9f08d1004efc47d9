"""An order being served, and what is told of it: to an operator its numbers, to its caller its errors."""

from __future__ import annotations

import logging
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from infinipot.errors import InfiniPotError
from infinipot.reading.decode import Voice
from infinipot.server.berths import Berth
from infinipot.server.courses import Course
from infinipot.server.orders import FaultError
from infinipot.server.ticket import Ticket

log = logging.getLogger("infinipot.server")


@dataclass(eq=False)
class Job:
    """An order being served."""

    ticket: Ticket
    berth: Berth
    course: Course
    started: float
    voice: Voice | None = None
    waits: Future[Any] | None = None


def slot(job: Job) -> dict[str, Any]:
    """Return what an operator sees of a job."""
    step = job.berth.reader.progress()
    kind = "speaking" if job.voice else "reading"
    return {
        "busy": True,
        "kind": kind,
        "tokens_read": step.tokens_read,
        "fill": step.fill,
        "cycles": step.cycles,
    }


def told(error: BaseException) -> Exception:
    """What a caller is told of an error: users' own as they are, ours without details."""
    if isinstance(error, InfiniPotError):
        return error
    if not isinstance(error, Exception):
        raise error
    text = str(error)
    if isinstance(error, MemoryError) or "allocate" in text or type(error).__name__ == "OutOfMemoryError":
        log.error("out of memory: %s", text.splitlines()[0] if text else "")
        return FaultError("out of memory while serving this request: send less, or try again later")
    log.error("an order failed", exc_info=error)
    return FaultError("an error of the server's own while serving this request: see its log")
