"""What one option is: name, type, default, bounds and help, declared once; front ends are made from it.

Imports no tensors, so that tasks and front ends may declare options of their own.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, Self

from infinipot.common.sizes import size
from infinipot.errors import ConfigError, wrong

SWITCHES = dict.fromkeys(("true", "yes", "on", "1"), True) | dict.fromkeys(("false", "no", "off", "0"), False)
Kind = type[int] | type[float] | type[str] | type[bool] | type[Path]


@dataclass(frozen=True)
class Option:
    """Something a user can set."""

    name: str  # as in Python; a front end spells the name its own way
    kind: Kind
    default: Any  # None where the method, the model or the task decides
    help: str
    group: str = ""
    least: float | None = None
    most: float | None = None
    choices: tuple[str, ...] = ()
    shown: str = ""  # the default in words
    metavar: str = ""
    short: str = ""  # a second, one-letter name
    many: bool = False  # may be given again for several values
    share: bool = False  # a number between 0 and 1 is a share of the capacity
    words: tuple[tuple[str, Any], ...] = ()  # that stand for a value
    # Of a recipe's size: to methods of `sized` memory, that choose what to keep, or that drop while reading.
    applies: Literal["sized", "chooses", "drops", "recalls"] = "drops"

    @property
    def in_environment(self) -> str:
        """The environment variable that may hold the value."""
        return f"INFINIPOT_{self.name.upper()}"

    def listed(self, group: str) -> Self:
        """Return the same option where a grid takes several values: one text with commas between."""
        default = None if self.default is None else str(self.default)
        told = f"{self.help.removesuffix('.')}, or their share: 0.5." if self.share else self.help
        plain = replace(self, kind=str, default=default, help=told, group=group, metavar="LIST")
        return replace(plain, choices=(), least=None, most=None)

    def check(self, value: Any) -> None:
        """Refuse a value outside of the bounds or choices, naming what works."""
        if value is None:
            return
        if self.choices and value not in self.choices:
            raise wrong(self.name, value, f"use {', '.join(self.choices[:-1])} or {self.choices[-1]}")
        if (self.least is not None and value < self.least) or (self.most is not None and value > self.most):
            raise wrong(self.name, value, f"use {self.bounds}")

    @property
    def bounds(self) -> str:
        """The bounds in words."""
        least, most = (f"{one or 0:.10g}" for one in (self.least, self.most))
        if self.least is None:
            return f"at most {most}"
        return f"at least {least}" if self.most is None else f"{least} to {most}"

    def worded(self, value: Any) -> str:
        """Return a value as a person would give it."""
        told = {meant: word for word, meant in self.words}.get(value, value)
        return f"{told:g}" if isinstance(told, float) else str(told)

    def parse(self, text: str) -> Any:
        """Return the value a text stands for: of a variable, a config file or one part of a list."""
        value = self._parsed(text.strip())
        self.check(value)
        return value

    def parse_list(self, text: str) -> tuple[Any, ...]:
        """Return the values of a text with commas between them, each once, in the order given."""
        found = tuple(dict.fromkeys(self.parse(part) for part in text.split(",") if part.strip()))
        if not found:
            remedy = "name one value, or several with commas between"
            raise ConfigError(f"`{self.name}` is empty", field=self.name, remedy=remedy)
        return found

    def _parsed(self, text: str) -> Any:
        if text in dict(self.words):
            return dict(self.words)[text]
        if self.kind is bool:
            if text.lower() not in SWITCHES:
                raise wrong(self.name, text, "use true or false")
            return SWITCHES[text.lower()]
        try:
            if self.share and "." in text and 0 < float(text) < 1:
                return float(text)
            return size(text) if self.kind is int and text[-1:].isalpha() else self.kind(text)
        except (ValueError, OverflowError):
            words = {int: "a whole number such as 2048 or 4k", float: "a number"}
            also = ", or a share such as 0.5" if self.share else ""
            also += "".join(f", or {word}" for word, _ in self.words)
            remedy = f"use {words.get(self.kind, self.kind.__name__)}{also}"
            raise wrong(self.name, text, remedy) from None
