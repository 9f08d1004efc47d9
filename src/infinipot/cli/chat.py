"""`infinipot chat`: talk for as long as you like, about files if you wish, in a pot of fixed size."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from infinipot.cli import options as o
from infinipot.cli.ask import open_files
from infinipot.cli.screen import note, stream_answer, summary, watch_reading
from infinipot.core.config import DEFAULT_CAPACITY
from infinipot.errors import InputError
from infinipot.models.catalog import DEFAULT_MODEL
from infinipot.reading.catalyst import catalyst_text

if TYPE_CHECKING:
    from infinipot.reading.reader import Reader

Files = Annotated[
    list[str] | None,
    typer.Option("--file", "-f", help="UTF-8 text to read before the talk; repeat for several."),
]


def chat(
    file: Files = None,
    model: o.ModelName = DEFAULT_MODEL,
    recipe: o.RecipeName = "infinipot",
    capacity: o.Capacity = DEFAULT_CAPACITY,
    keep: o.Keep = None,
    step: o.Step = None,
    settings: o.Set = None,
    novelty: o.Novelty = None,
    catalyst: o.Catalyst = None,
    pool: o.Pool = None,
    pooling: o.PoolKind = None,
    opening: o.Opening = 0,
    tail: o.Tail = None,
    format: o.FormatOption = None,
    device: o.Device = "auto",
    dtype: o.Dtype = "auto",
    max_new_tokens: o.MaxNewTokens = 256,
    temperature: o.Temperature = 0.0,
    seed: o.Seed = None,
    as_json: o.Json = False,
) -> None:
    """Talk with a model, one line a turn; end with an empty line, /quit or Ctrl-D.

    With --json every reply is one JSON document on its own line.
    """
    catalyst_text(catalyst or "general")
    if file and "-" in file:
        raise InputError("chat reads your messages from standard input: give files by name")
    meter = open_files(file) if file else None
    method = o.recipe(
        recipe,
        settings,
        capacity=capacity,
        keep=keep,
        step=step,
        opening=opening,
        tail=tail and tail.value,
        catalyst=catalyst,
        novelty=novelty,
        pool=pool,
        pooling=pooling and pooling.value,
    )
    wanted = o.generation(max_new_tokens, temperature, seed)
    engine = o.open_engine(model, device, dtype)
    chosen = replace(method, format=format.value if format else engine.format)
    reader = engine.reader(chosen)
    if meter is not None:
        watch_reading(reader, meter)
        note(summary(reader, chosen))
    for message in _messages():
        try:
            _reply(reader, reader.chat(message, wanted), as_json)
        except InputError as error:  # a message too long for the pot is no reason to end the talk
            note(f"infinipot: {error}")


def _reply(reader: Reader, pieces: Iterator[str], as_json: bool) -> None:
    if as_json:
        reply = {"reply": "".join(pieces).strip(), "cycles": reader.pot.cycles, "fill": reader.pot.fill}
        print(json.dumps(reply, ensure_ascii=False), flush=True)
    else:
        stream_answer(pieces)


def _messages() -> Iterator[str]:
    """Yield the user's lines; a prompt is shown only to a person."""
    person = sys.stdin.isatty()
    while True:
        if person:
            print("\x1b[1m> \x1b[0m", end="", file=sys.stderr, flush=True)
        try:
            line = sys.stdin.readline()
        except UnicodeDecodeError as error:
            raise InputError("standard input is not UTF-8 text") from error
        if not line.strip() or line.strip() == "/quit":
            return
        yield line.strip()
