"""Options that several commands share, and the reader they describe."""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from infinipot.engine import Engine
    from infinipot.reading.sampling import Generation
    from infinipot.recipes.recipe import Recipe

MODEL = "Model and pot"
ANSWER = "Answer"


class FormatName(StrEnum):
    """How the prompt is laid out."""

    chat = "chat"
    plain = "plain"


class TailName(StrEnum):
    """What becomes of a text's end."""

    distil = "distil"
    fill = "fill"
    raw = "raw"


class PoolingName(StrEnum):
    """How neighbouring scores are pooled."""

    mean = "mean"
    max = "max"


ModelName = Annotated[
    str,
    typer.Option("--model", "-m", help="Alias, hub id, folder or .gguf file.", rich_help_panel=MODEL),
]
Capacity = Annotated[
    int, typer.Option(help="KV entries per layer and head, never exceeded.", rich_help_panel=MODEL)
]
Keep = Annotated[
    int | None,
    typer.Option(help="Entries left after a distillation.", show_default="half", rich_help_panel=MODEL),
]
Step = Annotated[
    int | None,
    typer.Option(
        help="Entries dropped at a time; another way to say --keep.",
        show_default="the recipe's",
        rich_help_panel=MODEL,
    ),
]
RecipeName = Annotated[
    str, typer.Option("--recipe", "-r", help="Preset; `infinipot recipes` lists them.", rich_help_panel=MODEL)
]
Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="NAME=VALUE", help="Setting of the recipe, e.g. heavy=64.", rich_help_panel=MODEL
    ),
]
Novelty = Annotated[
    float | None,
    typer.Option(help="Share of kept entries chosen by novelty.", show_default="0.5", rich_help_panel=MODEL),
]
Catalyst = Annotated[
    str | None,
    typer.Option(
        metavar="NAME|TEXT",
        help="general, general-1, general-2, question, padding, unrelated, or a text of your own.",
        show_default="question in ask, general in chat",
        rich_help_panel=MODEL,
    ),
]
Pool = Annotated[
    int | None,
    typer.Option(
        help="Neighbouring slots whose scores are pooled.", show_default="7; 1 = off", rich_help_panel=MODEL
    ),
]
PoolKind = Annotated[
    PoolingName | None,
    typer.Option("--pooling", help="How they are pooled.", show_default="mean", rich_help_panel=MODEL),
]
Opening = Annotated[int, typer.Option(help="First slots that are never dropped.", rich_help_panel=MODEL)]
Tail = Annotated[
    TailName | None,
    typer.Option(
        help="A text's end, before a question: distil it, fill the pot with it, or leave it raw.",
        show_default="the recipe's",
        rich_help_panel=MODEL,
    ),
]
FormatOption = Annotated[
    FormatName | None,
    typer.Option(
        "--format",
        help="Prompt layout.",
        show_default="what measures better for the model",
        rich_help_panel=MODEL,
    ),
]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1, mps.", rich_help_panel=MODEL)]
Dtype = Annotated[str, typer.Option(help="auto, float32, bfloat16, float16, mixed.", rich_help_panel=MODEL)]
MaxNewTokens = Annotated[int, typer.Option(help="Longest answer.", rich_help_panel=ANSWER)]
Temperature = Annotated[
    float, typer.Option(help="0 always takes the likeliest token.", rich_help_panel=ANSWER)
]
Seed = Annotated[int | None, typer.Option(help="Makes sampling repeatable.", rich_help_panel=ANSWER)]
Json = Annotated[
    bool, typer.Option("--json", help="Print exactly one JSON document.", rich_help_panel=ANSWER)
]


def open_engine(name: str, device: str, dtype: str, fused: bool = False) -> Engine:
    """Load a model, pulling it under a progress bar when it is not there yet."""
    from infinipot.cli.models import draw_pull
    from infinipot.engine import open_engine

    return open_engine(name, device, dtype, on_pull=draw_pull, fused=fused)


def recipe(
    name: str, settings: list[str] | None = None, otherwise: str = "general", **options: Any
) -> Recipe:
    """Check the method, its sizes and settings before anything is loaded.

    `otherwise` is the catalyst where none was given.
    """
    from infinipot.recipes.preset import parse_knob
    from infinipot.recipes.presets import find
    from infinipot.recipes.recipe import Recipe

    method = find(name)
    options |= dict(parse_knob(text, method) for text in settings or [])
    found = Recipe.named(name, **options)
    return found if options.get("catalyst") else replace(found, catalyst=otherwise)


def generation(max_new_tokens: int, temperature: float, seed: int | None) -> Generation:
    """Return how the answer is to be generated."""
    from infinipot.reading.sampling import Generation

    return Generation(max_new_tokens, temperature, seed)
