"""Comma lists as people type them on the command line: `8k,128k,1m`, `0.1,0.5`, `general,question`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from infinipot.errors import ConfigError
from infinipot.recipes.option import Option


def parts(text: str) -> list[str]:
    """Return what stands between the commas, each once, in the order given."""
    return list(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))


def several(option: Option, text: str) -> tuple[Any, ...]:
    """Read every part of a list as the option's declaration says."""
    found = tuple(dict.fromkeys(map(option.parse, parts(text))))
    if not found:
        raise ConfigError(f"{option.name} is empty", field=option.name, remedy="name one value or several")
    return found


def names(given: Iterable[str]) -> tuple[str, ...]:
    """Read names that may be texts: `general,question`, but a text of several words keeps its commas."""
    found: list[str] = []
    for text in given:
        pieces = parts(text)
        found += pieces if all(len(piece.split()) == 1 for piece in pieces) else [text.strip()]
    return tuple(dict.fromkeys(found))
