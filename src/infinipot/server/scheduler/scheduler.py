"""One thread, one model, a fixed number of pots: which request reads and which answers next. No HTTP."""

import itertools
import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from infinipot.engine import Engine
from infinipot.errors import ConfigError, InfiniPotError
from infinipot.hf.speed.prepare import allow_recompiling
from infinipot.reading.grammar import Grammar
from infinipot.reading.held_words import Word
from infinipot.reading.sequence import Sequence
from infinipot.recipes.recipe import Recipe
from infinipot.server.scheduler import requests
from infinipot.server.scheduler.admission import Admission
from infinipot.server.scheduler.answer_batch import AnswerBatch
from infinipot.server.scheduler.handlers import Running
from infinipot.server.scheduler.memory_bound import MemoryBound
from infinipot.server.scheduler.pace import Pace
from infinipot.server.scheduler.post import Post
from infinipot.server.scheduler.pot_library import PotLibrary, tenant_store
from infinipot.server.scheduler.requests import BusyError, FaultError, RequestHandle, error_for_caller
from infinipot.server.scheduler.slots import Slots
from infinipot.server.scheduler.warm_up import set_stage, touch, warm_up
from infinipot.server.settings import Settings
from infinipot.store import PotStore

log = logging.getLogger("infinipot.server")


class Scheduler:
    """Serves requests with one model; what a request raises ends that request alone."""

    def __init__(self, engine: Engine, recipe: Recipe, store: PotStore, settings: Settings) -> None:
        if not recipe.preset.bounded:
            raise ConfigError(f"recipe '{recipe.preset.name}' does not bound memory: serve another one")
        if recipe.preset.mode.prompt == "passages":
            raise ConfigError(f"recipe '{recipe.preset.name}' keeps no conversation: serve another one")
        self.engine, self.recipe, self.store = engine, recipe, store
        readers = [engine.reader(recipe) for _ in range(settings.slots + settings.conversations)]
        self.slots = Slots(readers, settings.slots, settings.max_archive)
        self.memory = MemoryBound(engine)
        self.ready = self._closing = False
        self.failure = ""  # why the scheduler works no more; empty where it does
        self._admission = Admission(settings)
        self._running, self._post = list[Running](), Post()
        self._answers = AnswerBatch(self.memory.release)
        self._libraries: dict[str, PotLibrary] = {}
        self._change, self._turns = threading.Condition(), itertools.count(1)
        self._disk = ThreadPoolExecutor(1, "pots")  # one thread, so that what it locks it can unlock
        self._cards = ThreadPoolExecutor(4, "cards")  # of pots in a store that may be far away
        self._thread = threading.Thread(target=self._run, name="scheduler", daemon=True)
        self._pace = Pace(engine.model.device.type, settings.slowdown, settings.read_chunk)

    # For other threads --------------------------------------------------------

    def start(self) -> None:
        """Make every pot, measure what a whole cycle takes, and begin, unless told to stop meanwhile."""
        readers = [slot.reader for slot in self.slots.all]
        allow_recompiling()
        try:  # before memory is measured, and before the first caller would wait for it
            self.check_grammar(Grammar.json())
        except InfiniPotError as error:
            log.warning("%s; everything else is served", error)
        self.memory.make_pots(readers, lambda reader: None if self._closing else touch(reader))
        set_stage(readers, lambda: self.engine.reader(self.recipe))
        at_once = self.slots.at_once
        self.memory.measure(readers, at_once, lambda: warm_up(readers, at_once, lambda: self._closing))
        with self._change:
            if not self._closing:
                self._thread.start()
                self.ready = True

    def stop(self, wait_s: float) -> None:
        """Take no more requests; finish those accepted within `wait_s`, and give up the rest."""
        with self._change:
            self._closing, self.ready = True, False
            self._change.notify_all()
        end = time.monotonic() + wait_s
        while self._thread.is_alive() and time.monotonic() < end and self._accepted():
            time.sleep(0.02)
        for handle in self._accepted():
            handle.put(BusyError("the server is closing: try again", 5, closing=True))
            handle.cancel()
        if self._thread.ident is not None:  # else it was told to stop before it had begun
            self._thread.join(timeout=10)
        for pool in (self._disk, self._cards):
            pool.shutdown(wait=False, cancel_futures=True)
        self.memory.unbound()

    def submit(self, request: requests.Request) -> RequestHandle:
        """Accept a request, or say why not: called from an event loop."""
        requests.check(request)
        with self._change:
            if self.failure:
                raise self._fault()
            if self._closing or not self.ready:
                raise BusyError("the server is starting or closing: try again", 5, closing=True)
            self._admission.require_room(request.tenant, self._running)
            handle = RequestHandle(request, self._wake, self._post)
            self._admission.queue.append(handle)
            self._change.notify_all()
            return handle

    def check_grammar(self, grammar: Grammar) -> None:
        """Refuse a grammar that no answer of this model can follow."""
        grammar.constraint(self.engine.tokenizer, self.engine.model.vocabulary)

    def state(self) -> dict[str, Any]:
        """Return what an operator wants to see: numbers, no caller's text."""
        slots = [running.state() for running in list(self._running)]
        return {
            "model": self.engine.name,
            "recipe": self.recipe.describe(),
            "capacity": self.recipe.config.capacity,
            "slots": slots + [{"busy": False}] * max(0, self.slots.at_once - len(slots)),
            "slots_busy": len(slots),
            "queued": len(self._admission.queue),
            "conversations": self.slots.conversations,
            **self.memory.numbers(),
        }

    def words(self, tenant: str, name: str) -> Future[list[Word]]:
        """Look for the words a pot holds: one pot at a time, so that memory stays within its bound."""
        return self._disk.submit(self.library(tenant).words, name)

    def library(self, tenant: str) -> PotLibrary:
        """Return a tenant's pots."""
        if tenant not in self._libraries:
            made = PotLibrary(self.engine, self.recipe, tenant_store(self.store, tenant), self.memory)
            self._libraries.setdefault(tenant, made)  # two threads may be here; a library knows its writers
        return self._libraries[tenant]

    def background(self, work: Callable[..., Any], *given: Any) -> Future[Any]:
        """Do some work on the disk's thread; the scheduler wakes when it is done."""
        return self._waking(self._disk.submit(work, *given))

    def _accepted(self) -> list[RequestHandle]:
        with self._change:
            return [*self._admission.queue, *(running.handle for running in list(self._running))]

    def _wake(self) -> None:
        with self._change:
            self._change.notify_all()

    def _waking(self, future: Future[Any]) -> Future[Any]:
        future.add_done_callback(lambda _: self._wake())
        return future

    def _fault(self) -> FaultError:
        return FaultError(f"the server cannot answer ({self.failure}): start it again")

    # The scheduler's own thread -------------------------------------------------

    def _run(self) -> None:
        allow_recompiling()
        try:
            while self._wait():
                self.step()
        except BaseException as error:
            log.exception("the scheduler stopped")
            with self._change:  # from here on no request is accepted
                self.failure = f"{type(error).__name__}: {error}".splitlines()[0][:200]
                self.ready = False
            for handle in self._accepted():
                handle.put(self._fault())

    def _wait(self) -> bool:
        """Sleep until there is something to do; false when all is done and the server closes."""
        with self._change:
            while True:
                if self._admission.next(self._running) or any(one.cancelled for one in self._admission.queue):
                    return True
                if any(running.waits is None or running.waits.done() for running in self._running):
                    return True
                if self._closing and not self._running:
                    return False
                self._change.wait(timeout=0.05 if self._running else None)

    def step(self) -> None:
        """Begin requests that have a slot; read some, and make one token for all that answer."""
        self._drop_cancelled()
        self._admit()
        answering = len(self._answers)
        chunk = self._pace.chunk(answering, len(self._running))
        for running in [one for one in self._running if one.waits is not None and one.waits.done()]:
            self._advance(running, running.given)
        read = self._read(chunk, bool(answering))
        self._decode()
        self._pace.note(answering, read)

    def _read(self, chunk: int, answering: bool) -> int:
        """One forward pass for each request that reads; while others answer, in turns, a chunk in all.

        A pass of fewer tokens than the smallest chunk counts as one: it takes as long. In a step in which no
        text is read a question that just came is. Returns how many tokens were read, 0 where nothing was.
        """
        reading = [one for one in self._running if one.sequence is None and one.waits is None]
        reading, read = [one for one in reading if chunk or one.is_new_question], 0
        for running in sorted(reading, key=lambda one: one.turn):
            if running.turn:  # a pass takes as long as some steps
                self._post.flush()
            running.turn, reader, pot = next(self._turns), running.reader, running.reader.pot
            begun = pot.fill - (reader.config.kept if pot.cycles else 0)
            reader.session.block, before = self._pace.block(chunk, begun), (pot.tokens, pot.cycles)
            self._advance(running, lambda: None)
            if (pot.tokens, pot.cycles) != before:
                read += max(self._pace.least, pot.tokens - before[0])
            answering = answering or running.sequence is not None
            if answering and read >= chunk:
                break
        return read

    def _drop_cancelled(self) -> None:
        for running in [one for one in self._running if one.handle.cancelled and one.waits is None]:
            self._end(running, BusyError("given up", 1))
        with self._change:
            for handle in [one for one in self._admission.queue if one.cancelled]:
                self._admission.queue.remove(handle)

    def _admit(self) -> None:
        while handle := self._next():
            running = None
            try:
                running = None if handle.cancelled else self._begin(handle)
            except Exception as error:
                handle.put(error_for_caller(error))
            with self._change:  # a request is in one of both at any moment, so that none is forgotten
                self._admission.queue.remove(handle)
                if running is not None:
                    self._admission.queue.note_served(handle.request.tenant)
                    self._running.append(running)
        with self._change:
            self._admission.tell(self._running)

    def _next(self) -> RequestHandle | None:
        with self._change:
            return self._admission.next(self._running)

    def _begin(self, handle: RequestHandle) -> Running:
        request, library = handle.request, self.library(handle.request.tenant)
        running = Running(handle, self.slots, library, self.recipe.format, self.background)
        if isinstance(request, requests.ChatRequest) and request.pot is not None:
            running.waits = self._waking(self._cards.submit(library.version, request.pot))
        else:
            running.take_slot()
        return running

    def _advance(self, running: Running, given: Callable[[], Any]) -> None:
        """Take one step of a handler, with what it was waiting for."""
        running.others = len(self._running) - 1
        try:
            wanted = running.steps.send(given())
        except StopIteration as last:
            self._end(running, last.value)
            return
        except BaseException as error:
            failure, wanted = error_for_caller(error), None
        else:
            if not isinstance(wanted, Sequence):
                running.waits = wanted
            elif running.sequence is None:
                running.sequence = wanted
                self._answers.batch.add(wanted)
            return
        self._end(running, failure)  # the error itself is gone, and with it what it held in memory
        if isinstance(failure, requests.MemoryFaultError):
            self.memory.release()

    def _decode(self) -> None:
        """Make one token for every request that answers."""
        answering = {running.sequence: running for running in self._running if running.sequence}
        tokens, failed = self._answers.step()
        with self._post.together(self._answers):
            for sequence, failure in failed:
                self._end(answering[sequence], failure)
            for sequence, token in tokens:
                self._advance(answering[sequence], lambda token=token: token)  # type: ignore[misc]

    def _end(self, running: Running, last: requests.Event | Exception) -> None:
        """Give a request's slot back, then put its last event."""
        running.steps.close()
        running.release()  # what is not kept is emptied first, and then need not be counted
        try:
            if running.sequence is not None:
                self._answers.batch.drop(running.sequence)
        except Exception as error:  # its pot is not what its caller has seen: it is not kept
            log.warning("the pot of an answer is given up: %s", error_for_caller(error))
            running.slot.release()
        self._running.remove(running)
        self._admission.note_ended(running)
        self.memory.note_ended(self._disk.submit)
        running.handle.put(last)
