"""The server as a process: one socket, one event loop, and an end that loses nothing that was accepted."""

import asyncio
import atexit
import gc
import logging
import socket
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import FrameType

import uvicorn
from fastapi import FastAPI

from infinipot.common.atomic_files import reason
from infinipot.engine import Engine
from infinipot.errors import ConfigError
from infinipot.recipes.recipe import Recipe
from infinipot.server.http.app import create_app
from infinipot.server.http.protocol import Protocol
from infinipot.server.http.service import Service
from infinipot.server.scheduler.scheduler import Scheduler
from infinipot.server.settings import Settings
from infinipot.store import PotStore

log = logging.getLogger("infinipot.server")
SIZES = "%d slots and %d conversations of %d entries: %.2f GB of pots, at most %.2f GB in all"
ROOM = "the card has room for %d more such pots; torch is refused what is above the bound"
SWITCH_S = 2e-4  # the model's thread lets others in at every operation, and must not wait 5 ms after each
THREADS = 32  # for what waits for a disk; by default there are few where cores are


def listen(settings: Settings) -> socket.socket:
    """Take the address before a model is loaded for nothing."""
    try:
        asked = settings.host or None, settings.port, 0, socket.SOCK_STREAM, 0, socket.AI_PASSIVE
        family, kind, protocol, _, address = socket.getaddrinfo(*asked)[0]
        taken = socket.socket(family, kind, protocol)
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(address)
    except OSError as error:
        where = f"{settings.host or 'any address'}, port {settings.port}"
        problem = f"cannot listen on {where} ({reason(error)})"
        raise ConfigError(problem, field="port", remedy="use another `port` or `host`") from error
    return taken


def engine_and_recipe(settings: Settings, load: Callable[[], Engine]) -> tuple[Engine, Recipe]:
    """Check the recipe of the settings, then load the model; its prompts are laid out as conversations."""
    names = ("capacity", "recall", "pot_bits", "units")
    recipe = Recipe.named(settings.recipe, **{name: getattr(settings, name) for name in names})
    engine = load()
    return engine, replace(recipe, format=settings.format or engine.dialogue_format)


def build_app(
    settings: Settings, engine: Engine, recipe: Recipe, store: PotStore, ready_first: bool = False
) -> FastAPI:
    """Return the app that serves a model; `ready_first` as in `create_app`."""
    return create_app(settings, Scheduler(engine, recipe, store, settings), ready_first)


def serve(app: FastAPI, taken: socket.socket) -> None:
    """Serve until told to stop; raise what kept the scheduler from starting."""
    sys.setswitchinterval(SWITCH_S)
    service: Service = app.state.service
    host, port = taken.getsockname()[:2]
    config = uvicorn.Config(
        app,
        http=Protocol,
        ws="none",
        loop="asyncio",
        log_config=None,
        access_log=False,  # it has addresses with their queries; ours has not
        server_header=False,
        proxy_headers=False,
        h11_max_incomplete_event_size=32_768,  # bytes of headers
        limit_concurrency=512,
        timeout_graceful_shutdown=5,  # seconds for the last bytes of what is done
    )
    address = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
    Server(config, service, address).run(sockets=[taken])
    if service.failed is not None:
        raise service.failed


class Server(uvicorn.Server):
    """uvicorn; the first SIGTERM or Ctrl-C lets running work end and takes no more, the next ends at once."""

    def __init__(self, config: uvicorn.Config, service: Service, address: str) -> None:
        super().__init__(config)
        self._service, self._address = service, address
        self._signals, self._announced = 0, False
        self._draining: asyncio.Task[None] | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to listen, with threads enough."""
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(THREADS, "routes"))
        await super().startup(sockets)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002
        """Take note of a signal; the loop acts on it within a tick."""
        self._signals += 1

    async def on_tick(self, counter: int) -> bool:
        """Look, ten times a second, whether there is something to say or to end."""
        if self._signals and self._draining is None:
            self._service.closing = True
            log.info("closing: what was accepted is finished first")
            self._draining = asyncio.create_task(self._drain())
        if self._signals > 1 or self._service.failed is not None:
            self.should_exit = self.force_exit = True
        if self._service.scheduler.ready and not self._announced:
            self._announced = True
            gc.collect()
            gc.freeze()  # what is there stays: looked through again and again, it would stop all answers
            atexit.register(gc.unfreeze)  # or libraries tell of leaks
            settings, state = self._service.settings, self._service.scheduler.state()
            pots, bound = (state[name] / 1e9 for name in ("pots_bytes", "memory_bound_bytes"))
            log.info("%s is ready at %s", self._service.model, self._address)
            log.info(SIZES, settings.slots, settings.conversations, state["capacity"], pots, bound)
            if (room := self._service.scheduler.memory.room()) is not None:
                log.info(ROOM, room)
        return await super().on_tick(counter)

    async def _drain(self) -> None:
        await asyncio.to_thread(self._service.scheduler.stop, self._service.settings.drain_s)
        self.should_exit = True
