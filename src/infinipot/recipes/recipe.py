"""Recipes: a method with its sizes and settings, as plain data that builds a Reader."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from infinipot.core.config import DEFAULT_CAPACITY, PotConfig, ReadingMode, Tail
from infinipot.errors import ConfigError
from infinipot.policies.base import Policy
from infinipot.policies.registry import registry
from infinipot.reading.reader import Reader
from infinipot.reading.session import Model
from infinipot.recipes.presets import Method, find
from infinipot.text.tokenizer import Format, Tokenizer


@dataclass(frozen=True)
class Recipe:
    """A method with its sizes, its knobs, its catalyst and the prompt's format."""

    method: Method
    config: PotConfig
    knobs: Mapping[str, Any] = field(default_factory=dict)
    catalyst: str = "general"
    format: Format = "plain"

    def __post_init__(self) -> None:
        self.policy()
        self.mode()  # each checks its own knobs

    @classmethod
    def named(
        cls,
        name: str = "infinipot",
        *,
        capacity: int = DEFAULT_CAPACITY,
        keep: int | None = None,
        step: int | None = None,
        opening: int = 0,
        tail: Tail | None = None,
        catalyst: str | None = None,
        format: Format = "plain",
        **knobs: Any,
    ) -> Recipe:
        """Return a recipe by its method's name; what is not given is the method's own.

        `step` is another way to say `keep`: how many entries a distillation drops.
        """
        method = find(name)
        if method.mode.prompt == "truncate" or method.mode.distil != "full":
            for option, value in {"keep": keep, "step": step, "tail": tail}.items():
                if value is not None:
                    raise ConfigError(f"recipe '{name}' drops nothing while it reads: leave out --{option}")
        if opening and not method.policy:
            raise ConfigError(f"recipe '{name}' drops nothing from its cache: leave out --opening")
        if keep is not None and step is not None:
            raise ConfigError("keep and step say the same thing: give one of them")
        asked_keep, asked_step = keep, step
        if step is not None and not 1 <= step < capacity:
            raise ConfigError(f"step is {step}; use 1 to {capacity - 1}, below the capacity")
        if step is None and keep is None:
            step = min(method.step, max(1, capacity // 8))
        if step:
            keep = capacity - step
        drops = bool(method.policy) and method.bounded
        tail = tail or (method.tail if drops else "distil")
        given = {knob: value for knob, value in knobs.items() if value is not None}
        for knob in given:
            method.knob(knob)
        config = PotConfig(capacity, keep, opening, tail)
        recipe = cls(method, config, given, catalyst or "general", format)
        recipe._check_least(asked_keep, asked_step)
        if catalyst is not None and not recipe.uses_catalyst:
            raise ConfigError(f"recipe '{name}' asks no catalyst here: leave out --catalyst")
        return recipe

    def _check_least(self, keep: int | None, step: int | None) -> None:
        """Refuse a pot too small for the policy, naming a size that works for what the user gave."""
        policy, capacity = self.policy(), self.config.capacity
        least = policy.least if policy else 0
        left = self.config.kept if self.method.bounded else capacity
        if least <= left:
            return
        if keep is not None and least < capacity:
            remedy = f"--keep {least}"
        elif step is not None and least < capacity:
            remedy = f"--step {capacity - least} or less"
        elif not self.method.bounded or keep is not None:
            remedy = f"--capacity {least + (keep is not None)}"
        else:
            default = self.method.step and min(self.method.step, max(1, capacity // 8))
            remedy = f"--capacity {least + (step or default) if step or default else 2 * least}"
        raise ConfigError(
            f"recipe '{self.method.name}' keeps at least {least} entries and {left} would be left: "
            f"use {remedy}" + ("" if "less" in remedy else " or more")
        )

    @property
    def uses_catalyst(self) -> bool:
        """Say whether a catalyst prompt is run at each distillation."""
        policy = self.policy()
        return policy is not None and "catalyst" in policy.needs

    def policy(self) -> Policy | None:
        """Return the policy with this recipe's knobs."""
        if not self.method.policy:
            return None
        return registry()[self.method.policy](**{**self.method.fixed, **self.knobs})

    def mode(self) -> ReadingMode:
        """Return how it reads, with this recipe's knobs."""
        mode = self.method.mode
        return replace(mode, **self.knobs) if mode.positions == "grouped" else mode

    def reader(
        self, model: Model, tokenizer: Tokenizer, question: str | None = None, bare: bool = False
    ) -> Reader:
        """Return a reader with an empty pot; a question is needed for the catalyst of that name.

        With `bare` nothing is put between a text and its question: both are one prompt as they are.
        """
        return Reader(
            model,
            tokenizer,
            self.policy(),
            self.config,
            self.format,
            self.catalyst,
            question,
            self.mode(),
            bare,
        )

    def describe(self) -> dict[str, Any]:
        """Return the recipe as JSON-ready data."""
        found = {
            "name": self.method.name,
            "bounds": self.method.bounds,
            "catalyst": self.catalyst if self.uses_catalyst else None,
            "format": self.format,
            **asdict(self.config),
            **self.method.knobs,
            **self.method.fixed,
            **self.knobs,
        }
        if self.method.step:
            found["step"] = self.step
        if self.note:
            found["note"] = self.note
        return found

    @property
    def step(self) -> int:
        """Entries dropped at a time."""
        return self.config.capacity - self.config.kept

    @property
    def note(self) -> str:
        """What the reader of a result must know about how it was made."""
        if self.method.step and self.step > 1:
            return f"drops {self.step} entries at a time instead of one"
        if self.method.mode.prompt == "truncate":
            return "the middle of a text longer than the pot is not read"
        return "" if self.method.bounded else f"bounds {self.method.bounds}"
