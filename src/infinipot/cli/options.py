"""`infinipot options`: every option of every command, where it can be set, and what it is here."""

from collections.abc import Iterator
from typing import Annotated, Any

import typer

from infinipot.cli.config import Config, config_path
from infinipot.cli.expand import JSON, Given, flag, options_of, with_options, worded
from infinipot.cli.screen import draw, note, plain_table, print_json
from infinipot.common.suggest import hint
from infinipot.errors import ConfigError
from infinipot.recipes.option import Option

Words = Annotated[list[str] | None, typer.Argument(metavar="COMMAND", help="One command, e.g. models list.")]
Names = tuple[str, ...]
SECRET = "api_key"  # never printed  # noqa: S105  an option's name


@with_options(JSON)
def options(ctx: typer.Context, command: Words = None, *, given: Given) -> None:
    """Show every option: its variable, its name in the file, its value here, and where that comes from."""
    root, words = ctx.find_root().command, command or []
    every = dict(commands(root))
    chosen = {name: one for name, one in every.items() if name[: len(words)] == tuple(words)}
    if not chosen:
        names = [" ".join(name) for name in every]
        raise ConfigError(f"there is no command '{' '.join(words)}'", remedy=hint(" ".join(words), names))
    config = Config.load()
    rows = [row(name, one, config) for name, found in chosen.items() for one in found]
    if given["json"]:
        print_json({"file": str(config_path()), "there": config.path is not None, "options": rows}, indent=2)
        return
    for name in chosen:
        table = plain_table((f"infinipot {' '.join(name)}", "VARIABLE", "VALUE", "FROM"))
        for column in table.columns[:2]:
            column.no_wrap = True
        for one in (one for one in rows if one["command"] == " ".join(name)):
            value = one["shown"] if one["value"] is None else str(one["value"])
            table.add_row(one["option"], one["variable"], value, one["from"])
        draw(table, "", markup=False, highlight=False)
    note(f"the file is {config_path()}{'' if config.path else ', which is not there'}")


def commands(command: Any, names: Names = ()) -> Iterator[tuple[Names, tuple[Option, ...]]]:
    """Yield every command that has options: the words that name the command, and the options."""
    for word, one in getattr(command, "commands", {}).items():
        yield from commands(one, (*names, word))
    if names and (found := options_of(command)):
        yield names, found


def row(command: Names, option: Option, config: Config) -> dict[str, Any]:
    """Return what is to be known of one option of one command."""
    found = config.find(option, command)
    value = found.value if found else option.default
    plain = value if isinstance(value, str | int | float | bool | list | None) else str(value)
    return {
        "command": " ".join(command),
        "option": flag(option.name),
        "variable": option.in_environment,
        "key": option.name.replace("_", "-"),
        "default": str(option.default) if option.default is not None else None,
        "shown": worded(option.shown),
        "value": "set, not shown" if found and option.name == SECRET else plain,
        "from": found.where if found else "default",
        "help": worded(option.help),
    }
