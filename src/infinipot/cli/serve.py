"""`infinipot serve`: OpenAI's routes, kept pots and a page, in memory known before it starts."""

import importlib
import logging
import sys

from infinipot.cli import given as g
from infinipot.cli.expand import Given, with_options, worded
from infinipot.common.extras import needed_for
from infinipot.server.settings import OPTIONS, Settings


@with_options(*OPTIONS)
def serve(*, given: Given) -> None:
    """Serve a model to OpenAI clients, browsers and curl; every option is also a variable."""
    with needed_for("serving", "serve"):
        for name in ("fastapi", "prometheus_client", "uvicorn"):
            importlib.import_module(name)
    run_server(Settings.of(given.values), given)


def run_server(settings: Settings, given: Given) -> None:
    """Load the model and serve it until the process is told to stop."""
    from infinipot.server.lifecycle import build_app, engine_and_recipe, listen, serve
    from infinipot.store import open_store

    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(message)s", stream=sys.stderr)
    log = logging.getLogger("infinipot")
    log.setLevel(logging.INFO)
    for warning in settings.warnings():
        log.warning("WARNING: %s", worded(warning))
    taken, store = listen(settings), open_store(settings.store)
    served = engine_and_recipe(settings, lambda: g.open_engine(given, fused=True))
    serve(build_app(settings, *served, store), taken)
