"""Options that are not typed: `INFINIPOT_*` variables, then the user's file in TOML, for every command alike.

The working folder is not looked into: a file that came with a stranger's folder must not choose a model,
an address or a place.
"""

import os
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from platformdirs import user_config_path

from infinipot.common.suggest import hint, near
from infinipot.errors import ConfigError
from infinipot.recipes.option import Option

PREFIX, FILE = "INFINIPOT_", "INFINIPOT_CONFIG"
OTHERS = frozenset({"home", "config", "build", "no_bfloat16"})  # variables that are no options
Tree = Mapping[str, Any]  # the options of a command, each None, and the trees of the commands below it


def config_path(environment: Mapping[str, str] | None = None) -> Path:
    """Return where the file is, or would be: INFINIPOT_CONFIG, else in the user's configuration."""
    named = (os.environ if environment is None else environment).get(FILE)
    return (
        Path(named).expanduser() if named else user_config_path("infinipot", appauthor=False) / "config.toml"
    )


@dataclass(frozen=True)
class Found:
    """The value of an option, and where it was found, in words."""

    value: Any
    where: str


@dataclass(frozen=True)
class Config:
    """What variables and the file say; `content` is the file's, with names as in Python."""

    environment: Mapping[str, str]
    path: Path | None = None
    content: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def load(cls, environment: Mapping[str, str] | None = None) -> Self:
        """Read the file, if there is one; one that is named by INFINIPOT_CONFIG must be there."""
        given = os.environ if environment is None else environment
        path = config_path(given)
        try:
            text = path.read_text("utf-8")
        except FileNotFoundError:
            if not given.get(FILE):
                return cls(given)
            raise ConfigError(f"{FILE} is '{path}', and there is no such file") from None
        except (OSError, UnicodeDecodeError) as error:
            why = str(error.strerror).lower() if isinstance(error, OSError) else "it is not UTF-8"
            raise ConfigError(f"cannot read {path} ({why})") from error
        try:
            return cls(given, path, _as_python(tomllib.loads(text)))
        except tomllib.TOMLDecodeError as error:
            raise ConfigError(f"{path} is not TOML ({error})") from error

    def check(self, tree: Tree) -> None:
        """Refuse keys of the file that no command has, naming the nearest one."""
        below = [(self.content, tree, "")]
        for content, known, table in below:
            every = known if table else {**_every_option(known), **known}
            for key, value in content.items():
                inner = key in every and every[key] is not None
                if key not in every or inner != isinstance(value, Mapping):
                    raise self._unknown(key, isinstance(value, Mapping), every, table)
                if inner:
                    below.append((value, every[key], f"{table}.{key}".strip(".")))

    def find(self, option: Option, command: Iterable[str]) -> Found | None:
        """Return what is said of an option of a command: by its variable, its table, or for all commands."""
        if text := self.environment.get(option.in_environment):
            return self._parsed(option, text, option.in_environment)
        tables, names = [self.content], list(command)
        for name in names:
            tables.append(tables[-1].get(name, {}))
        for depth in range(len(names), -1, -1):
            if (value := tables[depth].get(option.name)) is not None:
                heading = f"[{'.'.join(names[:depth])}] " if depth else ""
                return self._parsed(option, value, f"{heading}{_spelt(option.name)} in {self.path}")
        return None

    def strangers(self, tree: Tree) -> list[str]:
        """Return a line for each variable that is no option and looks like one.

        Others are left alone: a cluster sets variables such as INFINIPOT_SERVICE_HOST for reasons of its own.
        """
        known = {name.upper() for name in _every_option(tree)}
        given = [name.removeprefix(PREFIX) for name in self.environment if name.startswith(PREFIX)]
        odd = [name for name in given if name not in known and name.lower() not in OTHERS]
        return [
            f"{PREFIX}{name} is no option: did you mean {PREFIX}{meant}?"
            for name in odd
            if (meant := near(name, known, 0.8))
        ]

    def _parsed(self, option: Option, value: Any, where: str) -> Found:
        listed = value if isinstance(value, list) else [value]
        try:
            if option.many:
                return Found([option.parse(_text(one)) for one in listed], where)
            return Found(option.parse(",".join(map(_text, listed))), where)
        except ConfigError as error:
            raise ConfigError(f"{where} is '{value}'", remedy=error.remedy) from None

    def _unknown(self, key: str, table: bool, known: Tree, above: str) -> ConfigError:
        names = [name for name in known if (known[name] is not None) == table]
        what, place = "table" if table else "key", f" in [{above}]" if above else ""
        remedy = hint(_spelt(key), map(_spelt, names))
        return ConfigError(f"{self.path} has an unknown {what} '{_spelt(key)}'{place}", remedy=remedy)


def _as_python(content: Mapping[str, Any]) -> dict[str, Any]:
    inner = {key: _as_python(one) if isinstance(one, Mapping) else one for key, one in content.items()}
    return {key.replace("-", "_"): one for key, one in inner.items()}


def _spelt(name: str) -> str:
    return name.replace("_", "-")


def _text(value: Any) -> str:
    """Return a value of the file as a person would type it; no shell has replaced a ~ there."""
    if isinstance(value, bool):
        return str(value).lower()
    at_home = isinstance(value, str) and value.startswith("~/")
    return str(Path(value).expanduser()) if at_home else str(value)


def _every_option(tree: Tree) -> dict[str, None]:
    found: dict[str, None] = {}
    for name, below in tree.items():
        found |= {name: None} if below is None else _every_option(below)
    return found
