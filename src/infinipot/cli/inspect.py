"""`infinipot inspect`: read a text with several recipes and show what each of them kept."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from infinipot.cli import options as o
from infinipot.cli.ask import open_files
from infinipot.cli.screen import Meter, note, watch_reading
from infinipot.core.config import DEFAULT_CAPACITY
from infinipot.errors import ConfigError, InputError
from infinipot.models.catalog import DEFAULT_MODEL
from infinipot.reading.catalyst import QUESTION, SHORT, catalyst_text

if TYPE_CHECKING:
    from infinipot.engine import Engine
    from infinipot.inspect.global_scoring import Whole
    from infinipot.inspect.run import Run
    from infinipot.reading.sampling import Generation
    from infinipot.recipes.recipe import Recipe

PAPER = "swa,ccd,cap-only:general,cap-only:question,infinipot:question"

Files = Annotated[
    list[str] | None,
    typer.Option("--file", "-f", help="UTF-8 text to read; repeat for several, - for standard input."),
]
Question = Annotated[str, typer.Option("--question", "-q", help="What to ask.")]
Recipes = Annotated[
    str,
    typer.Option(
        "--recipe",
        "-r",
        metavar="NAME[:CATALYST],...",
        help=f"Recipes to compare; 'paper' is {PAPER}.",
        rich_help_panel=o.MODEL,
    ),
]
Out = Annotated[Path, typer.Option(help="Folder to write to.")]
Global = Annotated[
    bool,
    typer.Option(
        "--global/--no-global",
        help="Read the whole text once without a pot, to see what the answer attends to; needs its memory.",
    ),
]


def inspect(
    question: Question,
    out: Out,
    file: Files = None,
    model: o.ModelName = DEFAULT_MODEL,
    recipe: Recipes = "infinipot,sirllm",
    capacity: o.Capacity = DEFAULT_CAPACITY,
    keep: o.Keep = None,
    format: o.FormatOption = None,
    device: o.Device = "auto",
    dtype: o.Dtype = "auto",
    max_new_tokens: o.MaxNewTokens = 64,
    whole: Global = True,
    as_json: o.Json = False,
) -> None:
    """Show what the pot kept: one page, pictures and numbers, for recipes that keep equally many entries."""
    if not question.strip():
        raise InputError("the question is empty")
    meter = open_files(file or [])
    chosen = recipes(recipe, capacity, keep, question)
    wanted = o.generation(max_new_tokens, 0.0, None)
    text = "".join(meter)
    if not text.strip():
        raise InputError("the text is empty: there is nothing to look into")
    engine = o.open_engine(model, device, dtype)
    layout = format.value if format else engine.format
    chosen = {name: replace(one, format=layout) for name, one in chosen.items()}
    runs = [_run(engine, name, one, text, question, wanted) for name, one in chosen.items()]
    scored = _whole(engine, runs[0], layout, text, question) if whole else None
    from infinipot.inspect.output import write_report

    facts = _facts(engine, file or [], question, runs[0], scored)
    written, told = write_report(runs, scored, out, facts)
    if as_json:
        print(json.dumps({"files": [str(path) for path in written], **told}, ensure_ascii=False))
        return
    for run in runs:
        print(f"{run.name}: {run.answer}")
    note(f"the page: {written[0]}, and {len(written) - 1} files beside it")


def recipes(listed: str, capacity: int, keep: int | None, question: str) -> dict[str, Recipe]:
    """The recipes by the names they are shown by; all keep equally many entries, so that pots compare."""
    from infinipot.inspect.run import check
    from infinipot.recipes.presets import find
    from infinipot.recipes.recipe import Recipe

    found = {}
    for word in (PAPER if listed.strip() == "paper" else listed).split(","):
        name, _, catalyst = word.strip().partition(":")
        check(find(name))
        one = Recipe.named(name, capacity=capacity, keep=keep or capacity // 2, tail="distil")
        if catalyst and not one.uses_catalyst:
            raise ConfigError(f"recipe '{name}' asks no catalyst: leave out ':{catalyst}'")
        if one.uses_catalyst:
            one = replace(one, catalyst=catalyst or QUESTION)
            catalyst_text(one.catalyst, question)
        found[f"{name} {SHORT.get(catalyst, catalyst)}".strip()] = one
    return found


def _run(engine: Engine, name: str, recipe: Recipe, text: str, question: str, generation: Generation) -> Run:
    from infinipot.inspect.run import attach, finish

    reader = engine.reader(recipe, question)
    reader.check(question, generation.max_new_tokens)
    attach(reader)
    watch_reading(reader, Meter([text], len(text)), name)
    ids = [token for part in engine.tokenizer.encode_stream([text]) for token in part]
    about: dict[str, Any] = {"name": name, "model": engine.name, "recipe": recipe.describe()}
    about["entry_bytes"] = reader.pot.nbytes / recipe.config.capacity
    run = finish(reader, ids, question, generation, about)
    note(f"{name}: {len(ids):,} tokens, {run.record.cycles:,} cycles, {run.seconds:.1f} s")
    return run


def _whole(engine: Engine, run: Run, layout: Any, text: str, question: str) -> Whole:
    from infinipot.inspect.global_scoring import check_memory, reader, score
    from infinipot.models.memory import available

    check_memory(len(run.record.ids), run.record.about["entry_bytes"], available(str(engine.model.device)))
    found = reader(engine.model, engine.tokenizer, text, question, layout)
    watch_reading(found, Meter([text], len(text)), "whole text")
    return score(found, question)


def _facts(engine: Engine, names: list[str], question: str, run: Run, scored: Whole | None) -> dict[str, str]:
    """What the page says about how it came about."""
    config = run.record.about["recipe"]
    kept = config["keep"]
    scoring = "one run with the whole text in the cache" if scored else "not run"
    return {
        "question": question,
        "text": f"{', '.join(Path(name).name for name in names)}: {len(run.record.ids):,} tokens",
        "model": f"{engine.name}, {engine.dtype}",
        "pot": f"{config['capacity']:,} entries, {kept:,} kept by every recipe",
        "global scoring": scoring,
    }
