"""Every system of the paper's tables by its name (`presets.toml`), and what each states about itself.

A policy of another package, found through the entry point `infinipot.policies`, is a preset of its own name.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from importlib.resources import files
from typing import Any

from infinipot.common import suggest
from infinipot.core.config import DEFAULT_MODE, ReadingMode, Tail
from infinipot.errors import ConfigError
from infinipot.policies.registry import registry
from infinipot.recipes.option import Option
from infinipot.recipes.options import SIZES


@dataclass(frozen=True)
class Preset:
    """A named system: what the system does and how."""

    name: str
    summary: str
    cost: str
    policy: str = ""  # its registered name; empty where nothing is ever chosen
    fixed: Mapping[str, Any] = field(default_factory=dict)  # settings of the policy that make it this system
    mode: ReadingMode = DEFAULT_MODE
    step: int = 0  # entries dropped at a time, at most an eighth of the capacity; 0 means half of it
    tail: Tail = "fill"  # what becomes of a text's end before a question
    recall: int | None = None  # as in `PotConfig`: 0 where reading again is no part of the method
    paper: str = ""
    deviations: str = ""

    @property
    def bounded(self) -> bool:
        """Say whether memory is known beforehand, whatever the text."""
        return not self.mode.grows

    @property
    def sized(self) -> bool:
        """Say whether the capacity bounds anything."""
        return self.bounded or bool(self.policy)

    @property
    def drops(self) -> bool:
        """Say whether entries are dropped while a text is read."""
        return self.bounded and bool(self.policy)

    def takes(self, option: str) -> bool:
        """Say whether an option of a recipe means anything to this method."""
        declared = SIZES.get(option)
        if declared is None:
            return option in self.knobs
        recalls = self.drops or self.mode.prompt == "passages"
        known = {"sized": self.sized, "chooses": bool(self.policy), "drops": self.drops, "recalls": recalls}
        return known[declared.applies]

    @property
    def bounds(self) -> str:
        """What is bounded, in words."""
        if self.bounded:
            return "memory"
        return "nothing until the prompt ends" if self.policy else "nothing"

    @property
    def needs(self) -> str:
        """The evidence the method chooses by, in words."""
        if not self.policy:
            return "nothing"
        policy = registry()[self.policy](**self.fixed)
        some = "the last token" if policy.last == 1 else f"the last {policy.last} tokens"
        words = {"catalyst": "the catalyst", "last": some, "running": "every token"}
        found = [f"attention of {whose}" for need, whose in words.items() if need in policy.needs]
        return " + ".join(found + ["novelty"] * ("novelty" in policy.needs)) or "nothing"

    @property
    def knobs(self) -> dict[str, Any]:
        """The settings a user may change, with their defaults."""
        if self.mode.positions == "grouped":
            return {"group": self.mode.group, "window": self.mode.window}
        if not self.policy:
            return {}
        plain = registry()[self.policy]()
        return {knob.name: getattr(plain, knob.name) for knob in fields(plain) if knob.name not in self.fixed}

    def knob(self, name: str) -> Any:
        """Return the default of a setting, or say why there is none of that name."""
        if name in self.fixed:
            problem = f"{name} is what makes recipe '{self.name}'"
            raise ConfigError(problem, field=name, remedy=f"use `recipe` {self.policy} to set it")
        return suggest.find(f"setting of recipe '{self.name}'", name, self.knobs, field="set")

    def describe(self) -> dict[str, Any]:
        """Return everything the method states about itself, as JSON-ready data."""
        cls = registry().get(self.policy)
        return {
            **{key: getattr(self, key) for key in ("name", "summary", "bounds", "needs")},
            "drops at a time": self.step or ("half" if self.mode.distil == "full" and cls else None),
            "cost": self.cost,
            "knobs": self.knobs,
            "with no question known": cls.unasked(self.fixed) or None if cls else None,
            "paper": self.paper or (cls.paper if cls else ""),
            "deviations": self.deviations or (cls.deviations if cls else "none known"),
        }

    def parse(self, name: str, text: str) -> Any:
        """Return the value a text stands for: of a size, or of a setting, whose default gives the type."""
        if name in SIZES:
            return SIZES[name].parse(text)
        default = self.knob(name)
        kind = type(default) if isinstance(default, (bool, int, float)) else str
        return Option(name, kind, default, "").parse(text)


def parse_knob(text: str, preset: Preset) -> tuple[str, Any]:
    """Read NAME=VALUE of a setting."""
    name, found, value = (part.strip() for part in text.partition("="))
    if not found:
        raise ConfigError(f"'{text}' is no setting", field="set", remedy="use NAME=VALUE")
    preset.knob(name)
    return name, preset.parse(name, value)


_TOLD = tomllib.loads((files("infinipot.recipes") / "presets.toml").read_text("utf-8"))
PRESETS = tuple(Preset(name, mode=ReadingMode(**row.pop("mode", {})), **row) for name, row in _TOLD.items())


def presets() -> dict[str, Preset]:
    """Return every preset by name: the paper's, then those of installed packages."""
    known = {preset.name: preset for preset in PRESETS}
    ours = {preset.policy for preset in PRESETS}
    for name, cls in registry().items():
        if name not in ours and name not in known:
            summary = (cls.__doc__ or "").strip().split("\n")[0].rstrip(".")
            known[name] = Preset(name, summary, "one pass per chunk", policy=name)
    return known


def find(name: str) -> Preset:
    """Return the preset of that name, or say which one was probably meant."""
    return suggest.find("recipe", name, presets(), field="recipe")
