"""What to say of a name that is not known: the nearest one that is, or all of them."""

import difflib
from collections.abc import Iterable, Mapping
from typing import TypeVar

from infinipot.errors import ConfigError

Value = TypeVar("Value")
FEW = 20  # names that are listed whole


def near(name: str, known: Iterable[str], likeness: float = 0.6) -> str:
    """Return the known name that is nearest, or nothing where none is near."""
    names = list(known)
    found = (difflib.get_close_matches(one, names, 1, likeness) for one in (name.lower(), name))
    return next((one[0] for one in found if one), "")


def hint(name: str, known: Iterable[str]) -> str:
    """Return "did you mean 'x'?" where a known name is near, else the names there are."""
    names = list(known)
    meant = near(name, names)
    if meant or not names:
        return f"did you mean '{meant}'?" if meant else "there is none"
    return f"use one of {', '.join(names[:FEW])}{' ...' if len(names) > FEW else ''}"


def find(what: str, name: str, known: Mapping[str, Value], field: str = "") -> Value:
    """Return what is known by that name, or say which name was probably meant."""
    if name in known:
        return known[name]
    raise ConfigError(f"unknown {what} '{name}'", field=field, remedy=hint(name, known))
