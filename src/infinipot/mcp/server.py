"""The protocol around the tools, by the official SDK: standard input and output, or HTTP on this machine."""

import json
import socket
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import anyio
import jsonschema
from mcp import types
from mcp.server import Server
from mcp.server.context import ServerRequestContext
from mcp.server.stdio import stdio_server
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from infinipot import __version__
from infinipot.common.atomic_files import reason
from infinipot.common.out_of_memory import out_of_memory
from infinipot.errors import ConfigError, InfiniPotError, InputError
from infinipot.mcp.pots import Pots
from infinipot.mcp.tools import INSTRUCTIONS, TOOLS

Context = ServerRequestContext[Any]
HOST = "127.0.0.1"
PATH = "/mcp"
PAUSE_S = 0.5  # between two notifications of progress
MOST_BYTES = 64 * 2**20  # of a request over HTTP: a text that is sent; a file is read by its path


def build(pots: Pots) -> Server[Any]:
    """Return the server of the tools."""
    work = {"read_document": pots.read, "ask": pots.ask, "recall": pots.recall}

    async def listed(_: Context, __: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        return types.ListToolsResult(tools=list(TOOLS.values()))

    async def called(context: Context, params: types.CallToolRequestParams) -> types.CallToolResult:
        given = params.arguments or {}
        try:
            _check(params.name, given)
            if params.name == "list_pots":
                found = await anyio.to_thread.run_sync(pots.listed)
            else:
                found = await _worked(context, partial(work[params.name], given))
        except InfiniPotError as error:
            return _result(error.worded(lambda name: f"`{name}`"), failed=True)
        except (MemoryError, RuntimeError) as error:
            if not out_of_memory(error):
                raise
            return _result("out of memory: use a smaller capacity or model", failed=True)
        return _result(json.dumps(found, ensure_ascii=False, indent=1), found)

    return Server(
        "infinipot",
        version=__version__,
        title="InfiniPot",
        instructions=INSTRUCTIONS,
        on_list_tools=listed,
        on_call_tool=called,
    )


async def serve_streams(server: Server[Any]) -> None:
    """Serve one client on standard input and output until it closes them."""
    async with stdio_server() as (reading, writing):
        await server.run(reading, writing, server.create_initialization_options())


def listening(port: int) -> socket.socket:
    """Take a port of this machine, which no other machine can reach."""
    taken = socket.socket()
    taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        taken.bind((HOST, port))
    except OSError as error:
        taken.close()
        problem = f"port {port} of {HOST} cannot be had ({reason(error)})"
        raise ConfigError(problem, field="port", remedy="use another `port`") from error
    return taken


async def serve_http(server: Server[Any], pots: Pots, taken: socket.socket) -> None:
    """Serve clients of this machine; requests that name another host, or come from a page, are refused."""
    import uvicorn

    async def ready(_: Request) -> JSONResponse:
        return JSONResponse({"ready": pots.loaded}, 200 if pots.loaded else 503)

    routes = [Route("/ready", ready)]
    app = server.streamable_http_app(
        streamable_http_path=PATH, host=HOST, custom_starlette_routes=routes, max_request_body_size=MOST_BYTES
    )
    await uvicorn.Server(uvicorn.Config(app, log_level="warning")).serve(sockets=[taken])


def _check(name: str, given: dict[str, Any]) -> None:
    """Refuse a tool that is not there, and arguments that are not what its schema says."""
    if name not in TOOLS:
        raise InputError(f"there is no tool '{name}'", remedy=f"use one of {', '.join(TOOLS)}")
    checker = jsonschema.Draft202012Validator(TOOLS[name].input_schema)
    if problem := jsonschema.exceptions.best_match(checker.iter_errors(given)):
        where = "".join(f"{part}: " for part in problem.path)
        raise InputError(f"{where}{_short(problem.message)}", remedy="see the tool's schema")


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 200 else f"{line[:100]} ... {line[-90:]}"


async def _worked(context: Context, work: Callable[..., dict[str, Any]]) -> dict[str, Any]:
    """Do a tool's work on a thread of its own; its caller hears how far it is, and ends it by leaving."""
    stop, told = threading.Event(), [0.0]

    def tell(done: int, total: int | None, message: str) -> None:
        now = time.monotonic()
        if done == total or now - told[0] >= PAUSE_S:
            told[0] = now
            anyio.from_thread.run(context.session.report_progress, float(done), total, message)

    try:
        return await anyio.to_thread.run_sync(partial(work, tell, stop), abandon_on_cancel=True)
    finally:
        stop.set()


def _result(text: str, found: dict[str, Any] | None = None, failed: bool = False) -> types.CallToolResult:
    line = " ".join(text.split()) if failed else text
    said = types.TextContent(type="text", text=line)
    return types.CallToolResult(content=[said], structured_content=found, is_error=failed)
