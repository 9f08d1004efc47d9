"""From declared options to a command's parameters: every command that takes an option takes the same one."""

import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import wraps
from inspect import Parameter, Signature, signature
from keyword import iskeyword
from typing import Annotated, Any, Literal

import typer

from infinipot.cli.completion import completing
from infinipot.cli.config import Config, Tree
from infinipot.errors import OPTION, InfiniPotError
from infinipot.recipes.option import Option

Command = Callable[..., None]
JSON = Option("json", bool, False, "Print one JSON document.")  # of commands that no model answers
OURS = ("given", "ctx")  # what a command receives that is no parameter of its own
_known: set[str] = set()  # the options of every command
_declared: dict[tuple[str, str], tuple[Option, ...]] = {}  # by a command's module and name there


@dataclass(frozen=True)
class Given:
    """The value of every option of a command, by name.

    `typed` are those that the command line gave; `where` says of those that a variable or the user's file
    gave, which one.
    """

    values: Mapping[str, Any]
    typed: frozenset[str] = frozenset()
    where: Mapping[str, str] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Any:
        return self.values[name]

    def chosen(self, name: str) -> bool:
        """Say whether the user gave an option, in whatever way."""
        return name in self.typed or name in self.where

    def of(self, options: Iterable[Option]) -> dict[str, Any]:
        """Return the values of these options."""
        return {option.name: self.values[option.name] for option in options}


def with_options(*options: Option) -> Callable[[Command], Command]:
    """Give a command these options, after its own; the command receives their checked values as `given`."""
    _known.update(option.name for option in options)

    def decorate(command: Command) -> Command:
        _declared[command.__module__, command.__qualname__] = options
        taken = signature(command, eval_str=True).parameters
        own = [one.replace(kind=Parameter.KEYWORD_ONLY) for name, one in taken.items() if name not in OURS]
        context = Parameter("ctx", Parameter.KEYWORD_ONLY, annotation=typer.Context)
        parameters = [context, *own, *map(_parameter, options)]

        @wraps(command)
        def run(ctx: typer.Context, **arguments: Any) -> None:
            given = resolved(ctx, options, {option.name: arguments.pop(_named(option)) for option in options})
            own = arguments | ({"ctx": ctx} if "ctx" in taken else {})
            try:
                command(**own, given=given)
            except InfiniPotError as error:  # who typed nothing must know where the value is
                if where := given.where.get(error.field):
                    error.args = (f"{error} (given by {where})",)
                raise

        run.__signature__ = Signature(parameters)  # type: ignore[attr-defined]  # what typer reads
        run.__annotations__ = {one.name: one.annotation for one in parameters}
        return run

    return decorate


def resolved(ctx: typer.Context, options: Iterable[Option], values: dict[str, Any]) -> Given:
    """Return the values of a command's options: typed, of a variable, of the file, or as declared."""
    config, tree, where = Config.load(), tree_of(ctx.find_root().command), {}
    config.check(tree)
    for line in config.strangers(tree):
        print(f"infinipot: {line}", file=sys.stderr)
    sources = {option.name: ctx.get_parameter_source(_named(option)) for option in options}
    typed = frozenset(name for name, source in sources.items() if source and source.name == "COMMANDLINE")
    for option in options:
        name = option.name
        if name not in typed and (found := config.find(option, command_names(ctx))):
            values[name], where[name] = found.value, found.where
        for one in values[name] or [] if option.many else [values[name]]:
            option.check(one)
    return Given(values, typed, where)


def command_names(ctx: Any) -> tuple[str, ...]:
    """Return the names of a command and of the groups it is in, without the program's own."""
    return (*command_names(ctx.parent), ctx.info_name) if ctx.parent else ()


def tree_of(command: Any) -> Tree:
    """Return the options of a command, and those of the commands below it."""
    inner = getattr(command, "commands", {})
    below: dict[str, Any] = {name: tree_of(one) for name, one in inner.items()}
    return below or {option.name: None for option in options_of(command)}


def options_of(command: Any) -> tuple[Option, ...]:
    """Return the declared options of a command of the program."""
    called = command.callback  # None of a group
    return _declared.get((called.__module__, called.__qualname__), ()) if called else ()


def flag(name: str) -> str:
    """Return how the command line spells an option; a name that is no option stays in backticks."""
    return f"--{name.replace('_', '-')}" if {name, name.removeprefix("no_")} & _known else f"`{name}`"


def _named(option: Option) -> str:
    return f"{option.name}_" if iskeyword(option.name) else option.name  # Python reserves `global`


def _parameter(option: Option) -> Parameter:
    kind: Any = Literal[option.choices] if option.choices else option.kind
    kind = list[kind] if option.many else kind
    names = [flag(option.name)] + ([f"-{option.short}"] if option.short else [])
    if option.kind is bool and option.default:
        names[0] += f"/--no-{option.name.replace('_', '-')}"
    extra: dict[str, Any] = {"metavar": option.metavar or "<int>" * (option.kind is int)}
    extra["parser"] = (lambda given: option.parse(str(given))) if option.words or option.kind is int else None
    extra |= {"autocompletion": completing(option.name), "show_default": option.shown}
    more = {name: value for name, value in extra.items() if value}
    told = typer.Option(*names, help=worded(option.help), rich_help_panel=option.group or None, **more)
    kind = Annotated[kind | None if option.default is None else kind, told]
    return Parameter(_named(option), Parameter.KEYWORD_ONLY, default=option.default, annotation=kind)


def worded(text: str) -> str:
    """Spell the options that a text names as the command line spells them."""
    return OPTION.sub(lambda found: flag(found[1]), text)
