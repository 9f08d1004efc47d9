"""What to say of a name that is not known: the nearest one that is, or all of them."""

import difflib
from collections.abc import Iterable, Mapping
from typing import TypeVar

from infinipot.errors import ConfigError

Value = TypeVar("Value")
FEW = 20  # names that are listed whole


def hint(name: str, known: Iterable[str]) -> str:
    """Return "did you mean 'x'?" where a known name is near, else the names there are."""
    names = list(known)
    near = difflib.get_close_matches(name.lower(), names, n=1) or difflib.get_close_matches(name, names, n=1)
    if near or not names:
        return f"did you mean '{near[0]}'?" if near else "there is none"
    return f"use one of {', '.join(names[:FEW])}{' ...' if len(names) > FEW else ''}"


def find(what: str, name: str, known: Mapping[str, Value], field: str = "") -> Value:
    """Return what is known by that name, or say which name was probably meant."""
    if name in known:
        return known[name]
    raise ConfigError(f"unknown {what} '{name}'", field=field, remedy=hint(name, known))
