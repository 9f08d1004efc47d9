"""`infinipot mcp`: pots as tools of an agent, over standard input and output or HTTP on this machine."""

import importlib
import logging
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from infinipot.cli import given as g
from infinipot.cli.expand import Given, with_options
from infinipot.cli.screen import note
from infinipot.common.extras import needed_for
from infinipot.errors import InputError
from infinipot.recipes.option import Option
from infinipot.recipes.options import COMPUTING, METHOD, MODEL, STORE
from infinipot.store import open_store

if TYPE_CHECKING:
    from infinipot.engine import Engine
    from infinipot.recipes.recipe import Recipe

_FOLDERS = "Folder whose files may be read; repeat for several."
OFFERED = (
    Option("folder", Path, None, _FOLDERS, many=True, shown="the working folder"),
    Option("urls", bool, False, "Let http and https addresses be read too."),
    Option("http", bool, False, "Serve HTTP on 127.0.0.1 in place of standard input and output."),
    Option("port", int, 8765, "With `http`: the port.", least=0, most=65535),
)


@with_options(*OFFERED, STORE, MODEL, *METHOD, *COMPUTING)
def mcp(*, given: Given) -> None:
    """Offer pots to an agent as tools (Model Context Protocol): read, ask, recall, list."""
    with needed_for("`infinipot mcp`", "mcp"):
        for name in ("mcp", "jsonschema"):
            importlib.import_module(name)
    import anyio

    from infinipot.mcp.pots import Pots, Reach
    from infinipot.mcp.server import HOST, PATH, build, listening, serve_http, serve_streams
    from infinipot.text.fetch import Bounds

    logging.basicConfig(level=logging.WARNING, format="%(message)s", stream=sys.stderr)
    folders = given["folder"] or [Path.cwd()]
    for folder in folders:
        if not folder.is_dir():
            raise InputError(f"there is no folder {folder}", field="folder", remedy="give another")
    reach = Reach(folders, Bounds() if given["urls"] else None)
    taken = listening(given["port"]) if given["http"] else None
    if taken is not None:  # started by a person, who reads errors; an agent waits for a first reply
        g.recipe_of(given)
    pots = Pots(lambda: _loaded(given), open_store(given["store"]), reach)
    server = build(pots)
    try:
        if taken is not None:
            where = f"http://{HOST}:{taken.getsockname()[1]}{PATH}"
            note(f"serving {where} to programs of this machine; Ctrl-C ends")
            anyio.run(serve_http, server, pots, taken)
        else:
            anyio.run(serve_streams, server)
    finally:
        pots.close()


def _loaded(given: Given) -> "tuple[Engine, Recipe]":
    recipe = g.recipe_of(given)  # before gigabytes of weights
    return g.open_engine(given), recipe
