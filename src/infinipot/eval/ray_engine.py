"""Jobs spread over a Ray cluster: every worker holds one model, the driver alone writes rows.

A worker has one job at a time: the job of one that dies goes back to the front of the queue.
"""

import importlib
import os
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from infinipot.common.extras import needed_for
from infinipot.errors import ConfigError, InfiniPotError
from infinipot.eval.evaluate import Evaluation, Open, Prepared, Workers
from infinipot.eval.runner import Job, Outcome

TRIES = 3  # deaths of a worker at one job before the job is given up
Pending = dict[Any, tuple[Any, Job | None]]  # calls: worker and job, None while the worker gets ready
LOGS = "see Ray's logs on the workers' nodes"
STARTS = 3  # workers lost in a row before one was ready: then something else is wrong


class WorkersLostError(InfiniPotError):
    """The cluster cannot hold a worker."""


class _Worker(Workers):
    """What runs on the cluster; the model is opened by the first call that needs it, never twice."""

    def ready(self) -> bool:
        """Answer once the model is there."""
        return self.runner is not None

    def one(self, job: Job) -> Outcome:
        return self.runner.one(job)


class RayWorkers(Workers):
    """Workers on a Ray cluster: the one at `address`, or one started on this machine."""

    def __init__(self, opened: Open, address: str | None = None, workers: int | None = None) -> None:
        with needed_for("a cluster", "ray"):
            self._ray: Any = importlib.import_module("ray")
        super().__init__(opened)
        _connect(self._ray, address)
        self._share, self._most = shares(self._ray, workers)
        self.deaths = 0  # of workers that were at a job
        self._spare: Any = None  # the worker that prepared, which need not load its model again

    def prepare(self, wanted: Evaluation) -> Prepared:
        """Prepare on a worker; the driver holds no model."""
        for _ in range(STARTS):
            self._spare = self._start()
            with suppress(self._ray.exceptions.RayActorError):
                found: Prepared = result_of(self._ray, self._spare.prepare.remote(wanted))
                return found
        raise WorkersLostError(f"a worker died {STARTS} times while it got ready: {LOGS}")

    def run(self, jobs: list[Job]) -> Iterator[tuple[Job, Outcome]]:
        """Yield every job with its outcome, in the order they end."""
        queue, tries = deque(jobs), Counter[tuple[str, str]]()
        pending: Pending = {}
        for _ in range(min(self._most, len(jobs))):
            self._enlist(pending)
        unready = 0
        try:
            while queue or any(job for _, job in pending.values()):
                (done,), _ = self._ray.wait(list(pending), num_returns=1)
                worker, job = pending.pop(done)
                outcome, alive = self._result(done)
                unready = 0 if alive else unready + (job is None)
                if unready >= STARTS * self._most:
                    raise WorkersLostError(f"workers die before they are ready: {LOGS}; run again to go on")
                if not alive:
                    self._ray.kill(worker)  # which may be out of reach only
                    self._enlist(pending)
                    outcome = self._again(job, queue, tries) if job else None
                elif queue:
                    following = queue.popleft()
                    pending[worker.one.remote(following)] = worker, following
                if job and outcome:
                    yield job, outcome
        finally:
            for worker, _ in pending.values():
                self._ray.kill(worker)

    def _result(self, done: Any) -> tuple[Outcome | None, bool]:
        """Return the outcome of a call, if it was a job, and whether its worker lives."""
        try:
            found = result_of(self._ray, done)
            return (found if isinstance(found, Outcome) else None), True
        except (self._ray.exceptions.RayActorError, self._ray.exceptions.WorkerCrashedError):
            return None, False

    def _again(self, job: Job, queue: deque[Job], tries: Counter[tuple[str, str]]) -> Outcome | None:
        """Put the job of a dead worker back, unless it has killed too many."""
        tries[job.key] += 1
        self.deaths += 1
        if tries[job.key] >= TRIES:
            return Outcome(error=f"its worker died {TRIES} times, perhaps out of memory")
        queue.appendleft(job)
        return None

    def _enlist(self, pending: Pending) -> None:
        """Start a worker; it gets a job once it is ready, so none waits for room on the cluster."""
        worker, self._spare = self._spare or self._start(), None
        pending[worker.ready.remote()] = worker, None

    def _start(self) -> Any:
        return self._ray.remote(**self._share)(_Worker).remote(self._open, 1)


def result_of(ray: Any, reference: Any) -> Any:
    """Wait for a value; an error of ours comes as it was raised, without the worker's traceback."""
    try:
        return ray.get(reference)
    except InfiniPotError as error:
        raise getattr(error, "cause", error) from None


def _connect(ray: Any, address: str | None) -> None:
    local = {} if address or "RAY_ADDRESS" in os.environ else {"include_dashboard": False}
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is told to anyone
    try:
        if not ray.is_initialized():
            ray.init(address=address, log_to_driver=False, logging_level="ERROR", **local)
    except (ConnectionError, ValueError, RuntimeError) as error:
        reason = " ".join(str(error).split())[:200]
        raise ConfigError(f"cannot reach a Ray cluster at {address or 'this machine'}: {reason}") from None


def shares(ray: Any, workers: int | None) -> tuple[dict[str, Any], int]:
    """Return what a worker needs and how many there are: one a GPU, or else one a node."""
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    cards = int(sum(node.get("GPU", 0) for node in nodes))
    if cards:
        return {"num_gpus": 1}, workers or cards
    cores = [int(node["CPU"]) for node in nodes if node.get("CPU", 0) >= 1]
    if not cores:
        raise ConfigError("the Ray cluster has neither GPUs nor CPUs to run on")
    wanted = workers or len(cores)
    return {"num_cpus": max(1, min(min(cores), sum(cores) // wanted))}, wanted
