"""Comma lists as people type them on the command line: `8k,128k,1m`, `0.1,0.5`, `general,question`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import TypeVar

from infinipot.errors import ConfigError

Value = TypeVar("Value")
UNITS = {"": 1, "k": 1024, "m": 1024 * 1024}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)([km]?)")


def parts(text: str) -> list[str]:
    """Return what stands between the commas, each once, in the order given."""
    return list(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))


def several(option: str, text: str, one: Callable[[str], Value], kind: str) -> tuple[Value, ...]:
    """Read every part of a list; say which part of which option is not of that kind."""
    found = []
    for part in parts(text):
        try:
            found.append(one(part))
        except ValueError:
            raise ConfigError(f"--{option} has '{part}'; use {kind}, with commas between several") from None
    if not found:
        raise ConfigError(f"--{option} is empty; use {kind}, with commas between several")
    return tuple(dict.fromkeys(found))


def size(text: str) -> int:
    """Read a number of tokens: 2048, 8k (8,192), 1m (1,048,576)."""
    match = _SIZE.fullmatch(text.lower())
    if not match:
        raise ValueError(text)
    count = float(match[1]) * UNITS[match[2]]
    if count < 1 or count != int(count):
        raise ValueError(text)
    return int(count)


def short(count: int) -> str:
    """Write a number of tokens as people do: 8K, 1M, 5000."""
    for unit, letter in ((UNITS["m"], "M"), (UNITS["k"], "K")):
        if count >= unit and count % unit == 0:
            return f"{count // unit}{letter}"
    return str(count)


def share(text: str) -> float:
    """Read a number from 0 to 1."""
    value = float(text)
    if not 0 <= value <= 1:
        raise ValueError(text)
    return value


def size_or_share(text: str) -> int | float:
    """Read entries (2048, 2k) or a share of the capacity (0.5)."""
    if "." in text and text.replace(".", "", 1).isdigit():
        value = share(text)
        if not 0 < value < 1:
            raise ValueError(text)
        return value
    return size(text)


def names(given: Iterable[str]) -> tuple[str, ...]:
    """Read names that may be texts: `general,question`, but a text of several words keeps its commas."""
    found: list[str] = []
    for text in given:
        pieces = parts(text)
        found += pieces if all(len(piece.split()) == 1 for piece in pieces) else [text.strip()]
    return tuple(dict.fromkeys(found))
