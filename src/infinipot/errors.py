"""One exception tree. Every message is one line: what is wrong, then what to do about it.

A message names an option in backticks, `capacity`; a front end words it its own way (`--capacity` on the
command line). Nothing below a front end knows how options are spelt.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager

OPTION = re.compile(r"`([a-z_]+)`")


class InfiniPotError(Exception):
    """Base of every error a user can cause or meet.

    field   the option or input that is at fault, where there is one.
    remedy  what to do about it; options are named in backticks.
    """

    exit_code = 2

    def __init__(self, problem: str, *, field: str = "", remedy: str = "") -> None:
        super().__init__(f"{problem}: {remedy}" if remedy else problem)
        self.problem, self.field, self.remedy = problem, field, remedy

    def worded(self, spell: Callable[[str], str]) -> str:
        """Return the message with every option it names spelt by a front end."""
        return OPTION.sub(lambda found: spell(found[1]), str(self))


class ConfigError(InfiniPotError):
    """A size or option that cannot work."""


def wrong(field: str, value: object, remedy: str) -> ConfigError:
    """Return the error of an option whose value cannot work."""
    told = f"'{value}'" if isinstance(value, str) else f"{value:g}" if isinstance(value, float) else value
    return ConfigError(f"`{field}` is {told}", field=field, remedy=remedy)


def check(fine: bool, field: str, value: object, remedy: str) -> None:
    """Refuse an option's value that is not fine."""
    if not fine:
        raise wrong(field, value, remedy)


class InputError(InfiniPotError):
    """A text or file that cannot be read."""


class ModelError(InfiniPotError):
    """A model that is unknown, unsupported or does not fit."""


@contextmanager
def foreign(problem: str, remedy: str = "", but: type[Exception] = InfiniPotError) -> Iterator[None]:
    """Turn whatever foreign code raises in the block into a ModelError of one line; ours and `but` go on."""
    try:
        yield
    except (InfiniPotError, but):
        raise
    except Exception as error:  # foreign code may raise anything
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        why = lines[0].rstrip(".:") if lines else type(error).__name__
        raise ModelError(f"{problem} ({why})", remedy=remedy) from error


class DownloadError(ModelError):
    """Weights that could not be fetched whole."""


class PotOverflowError(InfiniPotError):
    """More entries than the pot holds; the caller must distil first."""


class StoreError(InfiniPotError):
    """A pot that is not there, not whole, or cannot be kept."""
