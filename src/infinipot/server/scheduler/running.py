"""A request being served, and what is said of it: numbers to the operator, errors to its caller."""

from __future__ import annotations

import logging
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from infinipot.common.out_of_memory import out_of_memory
from infinipot.errors import InfiniPotError
from infinipot.reading.decode import Voice as Sequence
from infinipot.server.scheduler.handlers import Handler
from infinipot.server.scheduler.requests import FaultError, RequestHandle
from infinipot.server.scheduler.slots import Slot

log = logging.getLogger("infinipot.server")


@dataclass(eq=False)
class Running:
    """A request being served."""

    handle: RequestHandle
    slot: Slot
    handler: Handler
    started: float
    sequence: Sequence | None = None  # its answer, once it has begun
    waits: Future[Any] | None = None  # for the disk

    def state(self) -> dict[str, Any]:
        """Return what an operator sees of the request."""
        step = self.slot.reader.progress()
        numbers = {"tokens_read": step.tokens_read, "fill": step.fill, "cycles": step.cycles}
        return {"busy": True, "kind": "answering" if self.sequence else "reading", **numbers}


def error_for_caller(error: BaseException) -> Exception:
    """Return what a caller is told of an error: of the server's own no details, which go to the log.

    What is no `Exception` ends the scheduler.
    """
    if isinstance(error, InfiniPotError):
        return error
    if not isinstance(error, Exception):
        raise error
    if out_of_memory(error):
        log.error("out of memory: %s", (str(error).splitlines() or [""])[0])
        return FaultError("out of memory while serving this request: send less, or try again later")
    log.error("a request failed", exc_info=error)
    return FaultError("an error of the server's own while serving this request: see its log")
