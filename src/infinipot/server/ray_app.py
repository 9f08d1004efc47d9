"""The same app on Ray Serve, see deploy/ray-serve.yaml: replicas with a model each, and one pot store."""

import importlib
import logging
import os
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from fastapi import FastAPI
from ray import serve

from infinipot.engine import Engine, open_engine
from infinipot.errors import ConfigError
from infinipot.recipes.options import COMPUTING
from infinipot.recipes.recipe import Recipe
from infinipot.server.lifecycle import build_app, engine_and_recipe
from infinipot.server.settings import Settings
from infinipot.store import open_store


def build(settings: Settings) -> tuple[Engine, Recipe]:
    """Load the model of the settings, and the recipe it is served with."""
    computing = {one.name: getattr(settings, one.name) for one in COMPUTING}
    return engine_and_recipe(settings, partial(open_engine, settings.model, fused=True, **computing))


def make_app(variables: Mapping[str, str]) -> FastAPI:
    """Return the whole app with its model, as one replica runs it."""
    address = variables.get("INFINIPOT_BUILD", "infinipot.server.ray_app:build")
    module, _, name = address.partition(":")
    try:
        found: Callable[[Settings], tuple[Engine, Recipe]] = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError):
        raise ConfigError(f"INFINIPOT_BUILD is '{address}': use MODULE:FUNCTION") from None
    settings = Settings.of_variables(variables)
    store = open_store(settings.store)
    # Ray sends requests as soon as the app is up.
    return build_app(settings, *found(settings), store, ready_first=True)


@serve.deployment(name="Server")
@serve.ingress()
class Server:
    """One replica."""

    def __init__(self) -> None:
        logging.getLogger("infinipot").setLevel(logging.INFO)
        self._app = make_app(os.environ)

    def __serve_build_asgi_app__(self) -> FastAPI:
        return self._app

    def check_health(self) -> None:
        """Tell Ray to replace a replica whose scheduler died."""
        if self._app.state.service.dead:
            raise RuntimeError("the scheduler died")


def application(_: dict[str, Any]) -> Any:
    """Return what `serve run` runs."""
    return Server.bind()  # type: ignore[attr-defined]  # the decorators make it a deployment
