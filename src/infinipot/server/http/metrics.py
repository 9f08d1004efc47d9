"""Numbers for Prometheus. Labels are a route's pattern, never an address: a bounded number of series."""

import logging
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from infinipot.server.scheduler.requests import Answered, Event, Piece, Reading

log = logging.getLogger("infinipot.access")
KNOWN = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"})
SECONDS = (0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300, 1000)
GAUGES = {
    "slots_busy": "Slots at work.",
    "queued": "Requests that wait for a slot.",
    "conversations": "Conversations whose pot is kept.",
    "pots_bytes": "Bytes of all pots in memory, fixed at the start.",
    "memory_bytes": "Bytes this process holds.",
    "memory_bound_bytes": "Bytes it said at the start that it would hold at most.",
}


class Metrics:
    """Everything that is counted."""

    def __init__(self, state: Callable[[], dict[str, Any]]) -> None:
        self.registry = CollectorRegistry()  # its own: two servers in one process do not mix
        ours: dict[str, Any] = {"namespace": "infinipot", "registry": self.registry}
        for name, help in GAUGES.items():  # the scheduler's own numbers, at the moment they are asked for
            Gauge(name, help, **ours).set_function(lambda name=name: state()[name])  # type: ignore[misc]
        counter: Callable[..., Counter] = partial(Counter, **ours)
        histogram: Callable[..., Histogram] = partial(Histogram, **ours, buckets=SECONDS)
        self.requests = counter("requests", "Requests.", ("route", "method", "status"))
        self.seconds = histogram("request_seconds", "Time of a request.", ("route",))
        self.first = histogram("first_token_seconds", "Time from a request to the first text of its answer.")
        self.read = counter("tokens_read", "Tokens read.")
        self.cached = counter("tokens_cached", "Tokens known before.")
        self.written = counter("tokens_generated", "Tokens generated.")
        self.cycles = counter("cycles", "Distillations.")


class RequestMetrics:
    """Counts what one request does."""

    def __init__(self, metrics: Metrics, began: float) -> None:
        self._metrics, self._began = metrics, began
        self._last: Reading | None = None
        self._answering = False

    def see(self, event: Event) -> None:
        """Take note of an event."""
        if isinstance(event, Reading):
            last, self._last = self._last, event
            self._metrics.read.inc(max(0, event.processed - (last.processed if last else event.cached)))
            if last:  # before the first event a kept pot has cycles of its own
                self._metrics.cycles.inc(max(0, event.progress.cycles - last.progress.cycles))
        elif isinstance(event, Piece) and not self._answering:
            self._answering = True
            self._metrics.first.observe(time.perf_counter() - self._began)
        elif isinstance(event, Answered):
            self._metrics.written.inc(event.completion)
            self._metrics.cached.inc(event.cached)


class MetricsMiddleware:
    """ASGI middleware: counts requests and writes the access log, which has nothing a caller sent."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app, self._metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request, and count it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        status, started = 499, time.perf_counter()  # 499: the client left first

        async def noting(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, noting)
        finally:
            seconds = time.perf_counter() - started
            route = getattr(scope.get("route"), "path", None) or "other"
            method = scope["method"] if scope["method"] in KNOWN else "other"
            self._metrics.requests.labels(route, method, str(status)).inc()
            self._metrics.seconds.labels(route).observe(seconds)
            log.info("%s %s %d %.0f ms", method, route, status, seconds * 1000)
