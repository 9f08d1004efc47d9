"""One thread, one model, a fixed number of pots: who reads and who speaks next.

Every round makes one forward pass for each order that is reading and one token for all that speak,
together. Orders wait in a queue of fixed length. What an order raises ends that order alone; only
an error of the kitchen itself ends the kitchen, which then says so. Knows no HTTP.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from infinipot.engine import Engine
from infinipot.errors import ConfigError
from infinipot.reading.catalyst import catalyst_text
from infinipot.reading.decode import Chorus, Voice
from infinipot.reading.held_words import Word
from infinipot.reading.sampling import Generation
from infinipot.reading.session import BLOCK
from infinipot.recipes.recipe import Recipe
from infinipot.server import courses, prompts
from infinipot.server.berths import Berths
from infinipot.server.courses import Place
from infinipot.server.jobs import Job, slot, told
from infinipot.server.memory import Memory
from infinipot.server.orders import Brew, BusyError, Continue, Event, FaultError, Order, Talk
from infinipot.server.shelf import Shelf, space
from infinipot.server.ticket import Ticket
from infinipot.store import PotStore

log = logging.getLogger("infinipot.server")
SMALL = 256  # tokens read at once on a CPU while somebody waits for the next token of an answer


class Kitchen:
    """Serves orders with one model."""

    def __init__(
        self,
        engine: Engine,
        recipe: Recipe,
        store: PotStore,
        slots: int = 2,
        conversations: int = 2,
        queue: int = 32,
    ) -> None:
        if not recipe.preset.bounded:
            raise ConfigError(f"recipe '{recipe.preset.name}' does not bound memory: serve another one")
        self.engine, self.recipe, self.store, self.most = engine, recipe, store, queue
        readers = [engine.reader(recipe) for _ in range(slots + conversations)]
        self.berths = Berths(readers, slots)
        self.memory = Memory(engine)
        self.reason = ""  # why it is dead
        self.ready = False
        self._closing = False
        self._queue: deque[Ticket] = deque()
        self._jobs: list[Job] = []
        self._chorus = Chorus()
        self._shelves: dict[str, Shelf] = {}
        self._change = threading.Condition()
        self._disk = ThreadPoolExecutor(1, "pots")  # one thread, so that what it locks it can unlock
        self._thread = threading.Thread(target=self._run, name="kitchen", daemon=True)
        self._pace = 1.0  # seconds an order takes, lately

    # For other threads --------------------------------------------------------

    @property
    def alive(self) -> bool:
        """Say whether orders are served, or will be."""
        return not self.reason

    def start(self) -> None:
        """Make every pot, measure what a whole cycle takes, and begin; not if it is to stop by then."""
        for berth in self.berths.every:
            if self._closing:
                return
            berth.reader.read("warm")
            "".join(berth.reader.answer("up", Generation(1)))
            berth.reader.clear()
        readers = [berth.reader for berth in self.berths.every]
        self.memory.warmed(readers, self.berths.slots, lambda: self._closing)
        with self._change:
            if not self._closing:
                self._thread.start()
                self.ready = True

    def stop(self, wait_s: float) -> None:
        """Take no more orders; finish what was accepted within `wait_s`, and give up the rest."""
        with self._change:
            self._closing, self.ready = True, False
            self._change.notify_all()
        end = time.monotonic() + wait_s
        while self._thread.is_alive() and time.monotonic() < end and self._accepted():
            time.sleep(0.02)
        for ticket in self._accepted():
            ticket.put(BusyError("the server is closing: try again", 5, closing=True))
            ticket.cancel()
        if self._thread.ident is not None:  # else it was told to stop before it had begun
            self._thread.join(timeout=10)
        self._disk.shutdown(wait=False, cancel_futures=True)

    def submit(self, order: Order) -> Ticket:
        """Accept an order, or say why not: called from an event loop."""
        if isinstance(order, Brew):
            catalyst_text(order.catalyst)
        else:
            catalyst_text(order.options.catalyst, "")
        with self._change:
            if not self.alive:
                raise FaultError(f"the server cannot answer ({self.reason}): start it again")
            if self._closing or not self.ready:
                raise BusyError("the server is starting or closing: try again", 5, closing=True)
            waiting = len(self._queue) + len(self._jobs)
            if waiting >= self.berths.slots + self.most:
                wait = max(1, round(self._pace * (waiting + 1) / self.berths.slots))
                raise BusyError(
                    f"all slots are busy and {len(self._queue)} wait: try again in {wait} s", wait
                )
            ticket = Ticket(order, self._wake)
            self._queue.append(ticket)
            self._change.notify_all()
            return ticket

    def state(self) -> dict[str, Any]:
        """Return what an operator wants to see: numbers, nobody's text."""
        jobs = list(self._jobs)
        return {
            "model": self.engine.name,
            "recipe": self.recipe.describe(),
            "capacity": self.recipe.config.capacity,
            "slots": [slot(job) for job in jobs] + [{"busy": False}] * max(0, self.berths.slots - len(jobs)),
            "slots_busy": len(jobs),
            "queued": len(self._queue),
            "conversations": self.berths.conversations,
            **self.memory.numbers(),
        }

    def words(self, tenant: str, name: str) -> list[Word]:
        """Return the words a pot holds: one pot at a time, so that memory stays within its bound."""
        return self._disk.submit(self._shelf(tenant).words, name).result()

    def _accepted(self) -> list[Ticket]:
        """Who waits or is served."""
        with self._change:
            return [*self._queue, *(job.ticket for job in list(self._jobs))]

    def _wake(self) -> None:
        with self._change:
            self._change.notify_all()

    # The kitchen's own thread ---------------------------------------------------

    def _run(self) -> None:
        try:
            while self._wait():
                self._round()
        except BaseException as error:
            log.exception("the kitchen stopped")
            with self._change:  # from here on nobody is accepted
                self.reason = f"{type(error).__name__}: {error}".splitlines()[0][:200]
                self.ready = False
            for ticket in self._accepted():
                ticket.put(FaultError(f"the server cannot answer ({self.reason}): start it again"))

    def _wait(self) -> bool:
        """Sleep until there is something to do; false when all is done and the server closes."""
        with self._change:
            while True:
                free = len(self._jobs) < self.berths.slots
                if any(free or ticket.cancelled for ticket in self._queue):
                    return True
                if any(job.waits is None or job.waits.done() for job in self._jobs):
                    return True
                if self._closing and not self._jobs:
                    return False
                self._change.wait(timeout=0.05 if self._jobs else None)

    def _round(self) -> None:
        self._drop_cancelled()
        while self._queue and len(self._jobs) < self.berths.slots:
            ticket = self._queue[0]
            job = None if ticket.cancelled else self._begin(ticket)
            with self._change:  # it is in one of both at any moment, so that nobody is forgotten
                self._queue.popleft()
                if job is not None:
                    self._jobs.append(job)
        self._set_blocks()
        for job in list(self._jobs):
            if job.waits is not None and job.waits.done():
                found, job.waits = job.waits, None
                self._step(job, found.result)
            elif job.voice is None and job.waits is None:
                self._step(job)
        self._speak()

    def _set_blocks(self) -> None:
        """Read in small parts where a chunk takes seconds and somebody is listening."""
        if self.engine.model.device.type == "cpu":
            speaking = any(job.voice for job in self._jobs)
            for job in self._jobs:
                job.berth.reader.block = SMALL if speaking else BLOCK

    def _begin(self, ticket: Ticket) -> Job | None:
        order, version = ticket.order, ""
        shelf = self._shelf(order.tenant)
        names: list[str] = []
        try:
            if isinstance(order, Talk):
                version = shelf.version(order.pot) if order.pot is not None else ""
                names = prompts.names(order.tenant, version, order.messages)
        except Exception as error:
            ticket.put(told(error))
            return None
        berth, known = self.berths.take(names)
        place = Place(berth, known, ticket.put, self._background, shelf, self.recipe.format)
        if isinstance(order, Talk):
            course = courses.talk(place, order, version)
        elif isinstance(order, Continue):
            course = courses.go_on(place, order)
        else:
            course = courses.brew(place, order)
        return Job(ticket, berth, course, time.monotonic())

    def _step(self, job: Job, given: Callable[[], Any] | None = None) -> None:
        """Take one step of a course, with what it was waiting for."""
        try:
            wish = job.course.send(given()) if given else next(job.course)
        except StopIteration as last:
            self._end(job, last.value)
        except BaseException as error:
            self._end(job, told(error))
        else:
            if isinstance(wish, Voice):
                if job.voice is None:
                    job.voice = wish
                    self._chorus.add(wish)
            else:
                job.waits = wish

    def _speak(self) -> None:
        """One token for everybody who speaks."""
        if not self._chorus.voices:
            return
        speaking = {job.voice: job for job in self._jobs if job.voice}
        try:
            said = self._chorus.step()
        except BaseException as error:
            self._chorus = Chorus()
            for job in speaking.values():
                self._end(job, told(error))
            return
        for voice, token in said:
            self._step(speaking[voice], lambda token=token: token)  # type: ignore[misc]

    def _drop_cancelled(self) -> None:
        for job in [job for job in self._jobs if job.ticket.cancelled and job.waits is None]:
            self._end(job, BusyError("given up", 1))
        with self._change:
            self._queue = deque(ticket for ticket in self._queue if not ticket.cancelled)

    def _end(self, job: Job, last: Event | Exception) -> None:
        """Give an order's berth back, then tell its last event."""
        job.course.close()
        if job.voice is not None:
            self._chorus.drop(job.voice)
        if job.berth.busy:
            job.berth.leave()
        self._jobs.remove(job)
        self._pace += 0.2 * (time.monotonic() - job.started - self._pace)
        job.ticket.put(last)

    def _background(self, work: Callable[..., Any], *given: Any) -> Future[Any]:
        future = self._disk.submit(work, *given)
        future.add_done_callback(lambda _: self._wake())
        return future

    def _shelf(self, tenant: str) -> Shelf:
        if tenant not in self._shelves:
            made = Shelf(self.engine, self.recipe, space(self.store, tenant), self.memory)
            self._shelves.setdefault(tenant, made)  # two threads may be here, and a shelf knows who writes
        return self._shelves[tenant]
