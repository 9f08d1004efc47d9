"""From what was typed to a recipe, an engine and the way of answering; and the text that is to be read.

Nothing heavy is imported before it is needed.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from infinipot.cli.expand import Given
from infinipot.errors import InputError
from infinipot.recipes.options import ANSWER, DECLARED
from infinipot.text.files import check_text, read_text

if TYPE_CHECKING:
    from infinipot.engine import Engine
    from infinipot.reading.sampling import Generation
    from infinipot.recipes.recipe import Recipe


def open_engine(given: Given, dtype: str | None = None, fused: bool = False) -> Engine:
    """Load the model, pulling it under a progress bar when it is not there yet."""
    from infinipot.cli.models import draw_pull
    from infinipot.engine import open_engine

    wanted = given["model"], given["device"], dtype or given["dtype"]
    return open_engine(*wanted, on_pull=draw_pull, fused=fused)


def recipe_of(given: Given, otherwise: str = "general") -> Recipe:
    """Check the method, its sizes and settings before anything is loaded.

    `otherwise` is the catalyst where none was given.
    """
    from infinipot.recipes.preset import parse_knob
    from infinipot.recipes.presets import find
    from infinipot.recipes.recipe import Recipe

    preset = find(given["recipe"])
    options = given.of(DECLARED.values()) | dict(parse_knob(text, preset) for text in given["set"] or [])
    found = Recipe.named(preset.name, **options)
    return found if given["catalyst"] else replace(found, catalyst=otherwise)


def laid_out(recipe: Recipe, given: Given, engine: Engine) -> Recipe:
    """Return the recipe with the layout of prompts that was asked for, else the model's own."""
    return replace(recipe, format=given["format"] or engine.format)


def generation_of(given: Given) -> Generation:
    """Return how the answer is to be generated."""
    from infinipot.reading.sampling import Generation

    return Generation(**given.of(one for one in ANSWER if one.name in given.values))


@dataclass(frozen=True)
class Text:
    """A text as a stream of pieces, and its number of characters where that is known."""

    pieces: Iterable[str]
    total: int | None = None

    @classmethod
    def of_files(cls, names: list[str] | None) -> Text:
        """Check every file before any long work starts; return their text as one stream."""
        if not names:
            raise InputError(
                "nothing to read", field="file", remedy="give `file` NAME, or `file` - for standard input"
            )
        if names.count("-") > 1:
            raise InputError("standard input can be read only once", field="file", remedy="give - once")
        sizes = [check_text(name) for name in names if name != "-"]
        return cls(_texts(names), sum(sizes) if "-" not in names else None)


def _texts(names: list[str]) -> Iterator[str]:
    for index, name in enumerate(names):
        if index:
            yield "\n\n"
        yield from read_text(sys.stdin.buffer if name == "-" else name)
