"""`infinipot ask`: read files of any length, or take a kept pot; answer one question about them."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from infinipot.cli import options as o
from infinipot.cli.kept import Processed, Store, find
from infinipot.cli.screen import Meter, note, stream_answer, summary, watch_reading
from infinipot.core.config import DEFAULT_CAPACITY
from infinipot.errors import InputError
from infinipot.models.catalog import DEFAULT_MODEL
from infinipot.models.peak_memory import peak_memory_bytes
from infinipot.reading.catalyst import QUESTION, catalyst_text
from infinipot.store import open_store
from infinipot.text.files import check_text, read_text

if TYPE_CHECKING:
    from infinipot.reading.reader import Reader
    from infinipot.recipes.recipe import Recipe

Question = Annotated[str, typer.Argument(help="What to ask.")]
Files = Annotated[
    list[str] | None,
    typer.Option("--file", "-f", help="UTF-8 text to read; repeat for several, - for standard input."),
]

PotName = Annotated[
    str | None,
    typer.Option("--pot", metavar="NAME", help="Ask a pot that `infinipot read` kept, in place of files."),
]


def ask(
    ctx: typer.Context,
    question: Question,
    file: Files = None,
    pot: PotName = None,
    store: Store = None,
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
    max_new_tokens: o.MaxNewTokens = 128,
    temperature: o.Temperature = 0.0,
    seed: o.Seed = None,
    as_json: o.Json = False,
) -> None:
    """Read text of any length in a pot of fixed size, or take a kept pot; then answer a question about it."""
    catalyst_text(catalyst or QUESTION, question)
    if not question.strip():
        raise InputError("the question is empty")
    if pot is not None and file:
        raise InputError("--pot is read already: leave out --file, or `infinipot read --append` it first")
    kept = find(ctx, open_store(store), pot) if pot is not None else None
    meter = open_files(file or []) if kept is None else None
    method = (
        kept.recipe(catalyst)
        if kept
        else o.recipe(
            recipe,
            settings,
            QUESTION,
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
    )
    wanted = o.generation(max_new_tokens, temperature, seed)
    started = time.perf_counter()
    engine = kept.engine(device, dtype) if kept else o.open_engine(model, device, dtype)
    chosen = method if kept else replace(method, format=format.value if format else engine.format)
    reader = engine.reader(chosen, question)
    reader.check(question, max_new_tokens)
    loaded = time.perf_counter()
    if kept:
        kept.into(reader, engine, chosen)
    elif meter:
        watch_reading(reader, meter)
    read = time.perf_counter()
    processed = Processed(reader)
    pieces = processed.passing(reader.answer(question, wanted))
    answer = "".join(pieces).strip() if as_json else stream_answer(pieces)
    seconds = {"load": loaded - started, "read": read - loaded, "answer": time.perf_counter() - read}
    if as_json:
        told = report(engine.name, chosen, reader, answer, seconds)
        told |= {"pot": pot, "tokens_processed": processed.tokens} if kept else {}
        print(json.dumps(told, ensure_ascii=False))
    elif kept:
        note(
            f"pot '{pot}' of {kept.card.tokens_read:,} tokens in {read - loaded:.2f} s, "
            f"{processed.tokens:,} tokens of question"
        )
    else:
        note(summary(reader, chosen))


def open_files(names: list[str]) -> Meter:
    """Check every file before any long work starts; return their text as one stream."""
    if not names:
        raise InputError("nothing to read: give --file NAME, or --file - for standard input")
    if names.count("-") > 1:
        raise InputError("standard input can be read only once: give --file - once")
    sizes = [check_text(name) for name in names if name != "-"]
    return Meter(_texts(names), sum(sizes) if "-" not in names else None)


def _texts(names: list[str]) -> Iterator[str]:
    for index, name in enumerate(names):
        if index:
            yield "\n\n"
        yield from read_text(sys.stdin.buffer if name == "-" else name)


def report(
    model: str, recipe: Recipe, reader: Reader, answer: str, seconds: dict[str, float]
) -> dict[str, Any]:
    """Return the document of `--json`."""
    step = reader.progress()
    return {
        "answer": answer,
        "tokens_read": reader.tokens_read,
        "cycles": reader.pot.cycles,
        "capacity": step.capacity,  # null where memory is not bounded
        "keep": recipe.config.kept if recipe.preset.bounded and recipe.preset.policy else None,
        "engine": f"plain: {reader.capture_obstacle}" if reader.capture_obstacle else "captured",
        "peak_memory_bytes": peak_memory_bytes(str(reader.model.device)),
        "seconds": {phase: round(value, 3) for phase, value in seconds.items()},
        "model": model,
        "recipe": recipe.describe(),
    }
