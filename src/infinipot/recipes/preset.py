"""What a preset is: a named method, and what the method states about itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from infinipot.common import suggest
from infinipot.core.config import DEFAULT_MODE, ReadingMode, Tail
from infinipot.errors import ConfigError
from infinipot.policies.registry import registry
from infinipot.recipes.option import Option
from infinipot.recipes.options import SIZES


@dataclass(frozen=True)
class Preset:
    """A named system: what the system does and how.

    policy  registered name of the policy; empty where nothing is ever chosen.
    fixed   settings of the policy that make it this system.
    step    entries dropped at a time, at most an eighth of the capacity; 0 means half of the capacity.
    tail    what becomes of a text's end before a question.
    """

    name: str
    summary: str
    cost: str
    policy: str = ""
    fixed: Mapping[str, Any] = field(default_factory=dict)
    mode: ReadingMode = DEFAULT_MODE
    step: int = 0
    tail: Tail = "fill"
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
        return {"sized": self.sized, "chooses": bool(self.policy), "drops": self.drops}[declared.applies]

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
            "name": self.name,
            "summary": self.summary,
            "bounds": self.bounds,
            "needs": self.needs,
            "drops at a time": self.step or ("half" if self.mode.distil == "full" and cls else None),
            "cost": self.cost,
            "knobs": self.knobs,
            "paper": self.paper or (cls.paper if cls else ""),
            "deviations": self.deviations or (cls.deviations if cls else "none known"),
        }


def parse_knob(text: str, preset: Preset) -> tuple[str, Any]:
    """Read NAME=VALUE; the value takes the type of the setting's default."""
    name, found, value = (part.strip() for part in text.partition("="))
    if not found:
        raise ConfigError(f"'{text}' is no setting", field="set", remedy="use NAME=VALUE")
    default = preset.knob(name)
    kind = type(default) if isinstance(default, (bool, int, float)) else str
    return name, Option(name, kind, default, "").parse(value)
