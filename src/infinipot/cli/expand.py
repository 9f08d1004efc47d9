"""From declared options to a command's parameters: every command that takes an option takes the same one.

`@with_options(...)` gives a command one parameter for each option; the command itself takes them together, as
`given`, a mapping from names to values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import Annotated, Any, Literal, get_type_hints

import typer

from infinipot.recipes.option import Option

Command = Callable[..., None]


def with_options(options: Iterable[Option]) -> Callable[[Command], Command]:
    """Give a command these options; it receives their checked values as `given`."""
    declared = tuple(options)

    def decorate(command: Command) -> Command:
        hints = get_type_hints(command, include_extras=True)
        own = [
            one.replace(annotation=hints[one.name], kind=Parameter.KEYWORD_ONLY)
            for one in signature(command).parameters.values()
            if one.name != "given"
        ]
        parameters = [*own, *map(_parameter, declared)]

        @wraps(command)
        def run(**arguments: Any) -> None:
            given = {option.name: arguments.pop(option.name) for option in declared}
            for option in declared:
                for value in (
                    given[option.name] if option.many and given[option.name] else [given[option.name]]
                ):
                    option.check(value)
            command(**arguments, given=given)

        run.__signature__ = Signature(parameters)  # type: ignore[attr-defined]  # what typer reads
        run.__annotations__ = {one.name: one.annotation for one in parameters}
        return run

    return decorate


def flag(name: str) -> str:
    """Return how the command line spells an option."""
    return f"--{name.replace('_', '-')}"


def _parameter(option: Option) -> Parameter:
    kind: Any = Literal[option.choices] if option.choices else option.kind
    kind = list[kind] if option.many else kind
    names = [flag(option.name)] + ([f"-{option.short}"] if option.short else [])
    if option.kind is bool:
        names[0] += f"/--no-{option.name.replace('_', '-')}"
    shown: Any = {"show_default": option.shown} if option.shown else {}
    if option.metavar:
        shown["metavar"] = option.metavar
    told = typer.Option(*names, help=option.help, rich_help_panel=option.group or None, **shown)
    optional = option.default is None
    return Parameter(
        option.name,
        Parameter.KEYWORD_ONLY,
        default=option.default,
        annotation=Annotated[kind | None if optional else kind, told],
    )
