"""How a long run tells how far it is: it yields, and whoever runs it draws."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Step:
    """A sign of life: what is being done, and how far it is."""

    label: str
    done: int = 0
    total: int = 0
