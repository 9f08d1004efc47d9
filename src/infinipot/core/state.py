"""Everything a reader knows, as data: what is kept in a file, or put back where it was.

Tensors by name and numbers that JSON can hold; no code, no model, no file format.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from infinipot.errors import InputError

OTHER = "it was made by another model, recipe or dtype, or is damaged"


def damaged(what: str, remedy: str = "make the pot again") -> InputError:
    """Return the error of a state that does not hold together: it may come from a stranger's file."""
    return InputError(f"this state's {what}", remedy=remedy)


@dataclass(frozen=True)
class State:
    """What a reader, or a part of one, knows."""

    tensors: Mapping[str, Tensor] = field(default_factory=dict)
    numbers: Mapping[str, Any] = field(default_factory=dict)

    def part(self, name: str) -> "State":
        """Return what was put in under that name."""
        begin, numbers = f"{name}.", self.numbers.get(name, {})
        if not isinstance(numbers, Mapping):
            raise damaged(f"{name} is not a set of numbers")
        found = {key.removeprefix(begin): t for key, t in self.tensors.items() if key.startswith(begin)}
        return State(found, numbers)

    def number(self, name: str, least: int, most: int) -> int:
        """Return a whole number after checking its bounds: a state may come from a stranger's file."""
        found = self.numbers.get(name)
        if type(found) is not int or not least <= found <= most:
            raise damaged(f"{name} is {found!r}, not {least} to {most}", OTHER)
        return found

    def tensor(self, name: str, like: Tensor, *shape: int) -> Tensor:
        """Return a tensor of that shape, on the device of `like`; its dtype must be the same."""
        found = self.tensors.get(name)
        if found is None or found.shape != shape or found.dtype != like.dtype:
            seen = "missing" if found is None else f"{found.dtype} {list(found.shape)}"
            raise damaged(f"{name} is {seen}, not {like.dtype} {list(shape)}", OTHER)
        return found.to(like.device)


def joined(parts: Mapping[str, State]) -> State:
    """Return several states as one; `State.part` gives each out again by its name."""
    tensors = {f"{name}.{key}": t for name, part in parts.items() for key, t in part.tensors.items()}
    return State(tensors, {name: dict(part.numbers) for name, part in parts.items()})
