"""From declared options to a command's parameters: every command that takes an option takes the same one."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import Annotated, Any, Literal

import typer

from infinipot.errors import OPTION
from infinipot.recipes.option import Option

Command = Callable[..., None]
TYPED = ("COMMANDLINE", "ENVIRONMENT")  # where a value comes from that the user gave
_known = {"question", "out"}  # every option of every command; these are not declared


@dataclass(frozen=True)
class Given:
    """The value of every option of a command, by name; `typed` are those that the user gave."""

    values: Mapping[str, Any]
    typed: frozenset[str] = frozenset()

    def __getitem__(self, name: str) -> Any:
        return self.values[name]

    def of(self, options: Iterable[Option]) -> dict[str, Any]:
        """Return the values of these options."""
        return {option.name: self.values[option.name] for option in options}


def with_options(*options: Option) -> Callable[[Command], Command]:
    """Give a command these options, after its own; the command receives their checked values as `given`."""
    _known.update(option.name for option in options)

    def decorate(command: Command) -> Command:
        taken = signature(command, eval_str=True).parameters
        own = [taken[name].replace(kind=Parameter.KEYWORD_ONLY) for name in taken if name != "given"]
        context = Parameter("ctx", Parameter.KEYWORD_ONLY, annotation=typer.Context)
        parameters = [context, *own, *map(_parameter, options)]

        @wraps(command)
        def run(ctx: typer.Context, **arguments: Any) -> None:
            values = {option.name: arguments.pop(option.name) for option in options}
            for option in options:
                value = values[option.name]
                for one in value or [] if option.many else [value]:
                    option.check(one)
            sources = {name: ctx.get_parameter_source(name) for name in values}
            typed = (name for name, source in sources.items() if source and source.name in TYPED)
            command(**arguments, given=Given(values, frozenset(typed)))

        run.__signature__ = Signature(parameters)  # type: ignore[attr-defined]  # what typer reads
        run.__annotations__ = {one.name: one.annotation for one in parameters}
        return run

    return decorate


def flag(name: str) -> str:
    """Return how the command line spells an option; a name that is no option stays in backticks."""
    return f"--{name.replace('_', '-')}" if name in _known else f"`{name}`"


def _parameter(option: Option) -> Parameter:
    kind: Any = Literal[option.choices] if option.choices else option.kind
    kind = list[kind] if option.many else kind
    names = [flag(option.name)] + ([f"-{option.short}"] if option.short else [])
    if option.kind is bool and option.default:
        names[0] += f"/--no-{option.name.replace('_', '-')}"
    extra: dict[str, Any] = {
        "metavar": option.metavar,
        "show_default": option.shown,
        "envvar": option.variable,
    }
    extra["parser"] = option.parse if option.words else None
    more = {name: value for name, value in extra.items() if value}
    told = typer.Option(*names, help=worded(option.help), rich_help_panel=option.group or None, **more)
    kind = Annotated[kind | None if option.default is None else kind, told]
    return Parameter(option.name, Parameter.KEYWORD_ONLY, default=option.default, annotation=kind)


def worded(text: str) -> str:
    """Spell the options that a text names as the command line spells them."""
    return OPTION.sub(lambda found: flag(found[1]), text)
