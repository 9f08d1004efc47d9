"""The way in which a page's claims are written down."""

from __future__ import annotations

from typing import Any, Protocol


class Says(Protocol):
    """Checks a phrase of a page; `holds` is whether the raw files say what its words say."""

    def __call__(self, name: str, phrase: str, *values: Any, holds: bool = True) -> None: ...
