"""What a shell offers for an option's value when Tab is pressed: names of models, recipes and kept pots."""

import os
from collections.abc import Callable, Iterable

from infinipot.models import catalog


def _recipes() -> Iterable[str]:
    from infinipot.recipes.presets import presets

    return presets()


def _pots() -> Iterable[str]:
    from infinipot.store import open_store

    return open_store(os.environ.get("INFINIPOT_STORE")).names()


NAMES: dict[str, Callable[[], Iterable[str]]] = {
    "model": lambda: catalog.ALIASES,
    "recipe": _recipes,
    "pot": _pots,
    "append": _pots,
}


def completing(option: str) -> Callable[[str], list[str]] | None:
    """Return the function that offers values of an option, if its values have names."""
    if (names := NAMES.get(option)) is None:
        return None

    def complete(incomplete: str) -> list[str]:
        try:
            return sorted(name for name in names() if name.startswith(incomplete))
        except Exception:  # a shell that waits for names must not be shown a traceback
            return []

    return complete
