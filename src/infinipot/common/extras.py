"""Packages that only a part of InfiniPot needs: where one is missing, the message says what to install."""

from collections.abc import Iterator
from contextlib import contextmanager

from infinipot.errors import ConfigError


@contextmanager
def needed_for(what: str, extra: str) -> Iterator[None]:
    """Turn a failed import in the block into one line that names the extra to install."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == "infinipot":
            raise  # our own fault, not a package that is missing
        remedy = f"run pip install '.[{extra}]' in your copy of the repository"
        raise ConfigError(f"{what} needs more packages", remedy=remedy) from error
