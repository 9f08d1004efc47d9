"""Everything a reader knows, as data: what is kept in a file, or put back where it was.

Tensors by name and numbers that JSON can hold; no code, no model, no file format.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from infinipot.errors import InputError


@dataclass(frozen=True)
class State:
    """What a reader, or a part of one, knows."""

    tensors: Mapping[str, Tensor] = field(default_factory=dict)
    numbers: Mapping[str, Any] = field(default_factory=dict)

    def part(self, name: str) -> State:
        """Return what was put in under that name."""
        begin = f"{name}."
        tensors = {key.removeprefix(begin): t for key, t in self.tensors.items() if key.startswith(begin)}
        numbers = self.numbers.get(name, {})
        if not isinstance(numbers, Mapping):
            raise InputError(f"this state's {name} is not a set of numbers: make the pot again")
        return State(tensors, numbers)

    def number(self, name: str, least: int, most: int) -> int:
        """Return a whole number after checking its bounds: a state may come from a stranger's file."""
        found = self.numbers.get(name)
        if type(found) is not int or not least <= found <= most:
            raise InputError(
                f"this state's {name} is {found!r}, not {least} to {most}: it was made by another "
                "recipe or model, or is damaged"
            )
        return found

    def tensor(self, name: str, like: Tensor, *shape: int) -> Tensor:
        """Return a tensor of that shape, on the device of `like`; its dtype must be the same."""
        found = self.tensors.get(name)
        if found is None or found.shape != shape or found.dtype != like.dtype:
            seen = "missing" if found is None else f"{found.dtype} {list(found.shape)}"
            raise InputError(
                f"this state's {name} is {seen}, not {like.dtype} {list(shape)}: it was made by another "
                "model, recipe or dtype"
            )
        return found.to(like.device)


def joined(parts: Mapping[str, State]) -> State:
    """Put states under names."""
    tensors = {f"{name}.{key}": t for name, part in parts.items() for key, t in part.tensors.items()}
    return State(tensors, {name: dict(part.numbers) for name, part in parts.items()})
