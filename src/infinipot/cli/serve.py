"""`infinipot serve`: OpenAI's routes, kept pots and a page, in memory known before it starts."""

from __future__ import annotations

import importlib
import logging
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from infinipot.cli import options as o
from infinipot.core.config import DEFAULT_CAPACITY
from infinipot.errors import ConfigError
from infinipot.models.catalog import DEFAULT_MODEL

if TYPE_CHECKING:
    from infinipot.server.settings import Settings

POTS, DOOR, BOUNDS = "Pots", "Who may come", "Bounds"
MIB = 2**20


def _option(panel: str, help: str, *names: str, variable: str, **more: Any) -> Any:
    return typer.Option(*names, envvar=f"INFINIPOT_{variable}", help=help, rich_help_panel=panel, **more)


Model = Annotated[
    str, _option(POTS, "Alias, hub id, folder or .gguf file.", "--model", "-m", variable="MODEL")
]
Recipe = Annotated[str, _option(POTS, "Preset that bounds memory.", "--recipe", "-r", variable="RECIPE")]
Capacity = Annotated[int, _option(POTS, "KV entries per layer and head of a pot.", variable="CAPACITY")]
FormatOption = Annotated[
    o.FormatName | None,
    _option(
        POTS,
        "Prompt layout.",
        "--format",
        variable="FORMAT",
        show_default="chat where the model has a template",
    ),
]
Slots = Annotated[int, _option(POTS, "Requests served at the same time.", variable="SLOTS")]
Conversations = Annotated[
    int, _option(POTS, "Conversations kept for their next turn, beside the slots.", variable="CONVERSATIONS")
]
Queue = Annotated[int, _option(POTS, "Requests that may wait; more get 429.", variable="QUEUE")]
Store = Annotated[
    str | None,
    _option(
        POTS,
        "Folder or fsspec address of kept pots.",
        variable="STORE",
        show_default="the user's data folder",
    ),
]
Device = Annotated[str, _option(POTS, "auto, cpu, cuda, cuda:1, mps.", variable="DEVICE")]
Dtype = Annotated[str, _option(POTS, "auto, float32, bfloat16, float16, mixed.", variable="DTYPE")]
Host = Annotated[str, _option(DOOR, "Address to listen on; 0.0.0.0 is every one.", variable="HOST")]
Port = Annotated[int, _option(DOOR, "Port to listen on.", variable="PORT")]
Key = Annotated[
    list[str] | None,
    _option(
        DOOR,
        "Key that every route but /health needs; repeat it, or commas between several. A variable or a file "
        "is better: others on this machine see the command line.",
        "--api-key",
        variable="API_KEY",
        show_envvar=True,
    ),
]
KeyFile = Annotated[
    Path | None, _option(DOOR, "File with keys, one a line.", "--api-key-file", variable="API_KEY_FILE")
]
MaxBody = Annotated[int, _option(BOUNDS, "Bytes of a JSON request.", variable="MAX_BODY")]
MaxUpload = Annotated[int, _option(BOUNDS, "Bytes of an upload.", variable="MAX_UPLOAD")]
MaxUploads = Annotated[int, _option(BOUNDS, "Uploads received at the same time.", variable="MAX_UPLOADS")]
MaxTokens = Annotated[int, _option(BOUNDS, "Tokens of an answer.", variable="MAX_TOKENS")]
Drain = Annotated[
    float, _option(BOUNDS, "Seconds that running requests get at the end.", "--drain", variable="DRAIN")
]
Spool = Annotated[
    Path | None,
    _option(BOUNDS, "Folder for uploads on their way.", variable="SPOOL", show_default="the system's own"),
]


def serve(
    model: Model = DEFAULT_MODEL,
    recipe: Recipe = "infinipot",
    capacity: Capacity = DEFAULT_CAPACITY,
    format: FormatOption = None,
    slots: Slots = 2,
    conversations: Conversations = 2,
    queue: Queue = 32,
    store: Store = None,
    device: Device = "auto",
    dtype: Dtype = "auto",
    host: Host = "127.0.0.1",
    port: Port = 8000,
    api_key: Key = None,
    api_key_file: KeyFile = None,
    max_body: MaxBody = 8 * MIB,
    max_upload: MaxUpload = 4096 * MIB,
    max_uploads: MaxUploads = 4,
    max_tokens: MaxTokens = 16_384,
    drain: Drain = 30.0,
    spool: Spool = None,
) -> None:
    """Serve a model to OpenAI clients, browsers and curl; every option is also a variable."""
    _check_extra()
    from infinipot.server.keys import Keys, listed
    from infinipot.server.settings import Settings

    settings = Settings(
        model=model,
        capacity=capacity,
        recipe=recipe,
        format=format.value if format else "",
        slots=slots,
        conversations=conversations,
        queue=queue,
        host=host,
        port=port,
        keys=Keys.of(listed(api_key or [], api_key_file)),
        store=store,
        device=device,
        dtype=dtype,
        max_body=max_body,
        max_upload=max_upload,
        max_uploads=max_uploads,
        max_tokens=max_tokens,
        drain_s=drain,
        spool=spool or Path(tempfile.gettempdir()),
    )
    _run(settings)


def _run(settings: Settings) -> None:
    from infinipot.server.lifecycle import build_app, listen, serve
    from infinipot.server.scheduler.prompts import format_of
    from infinipot.store import open_store

    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(message)s", stream=sys.stderr)
    log = logging.getLogger("infinipot")
    log.setLevel(logging.INFO)
    for warning in settings.warnings():
        log.warning("WARNING: %s", warning)
    chosen = o.recipe(settings.recipe, capacity=settings.capacity)
    taken = listen(settings)
    store = open_store(settings.store)
    engine = o.open_engine(settings.model, settings.device, settings.dtype)
    served = replace(chosen, format=format_of(engine.tokenizer, settings.format))
    serve(build_app(settings, engine, served, store), taken)


def _check_extra() -> None:
    try:
        for name in ("fastapi", "prometheus_client", "sse_starlette", "uvicorn"):
            importlib.import_module(name)
    except ImportError:
        raise ConfigError("serving needs more packages: pip install 'infinipot[serve]'") from None
