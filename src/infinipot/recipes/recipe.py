"""Recipes: a preset with its sizes and settings, as plain data that builds a Reader."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Self

from infinipot.core.config import DEFAULT_CAPACITY, PotConfig, ReadingMode
from infinipot.errors import ConfigError, check
from infinipot.policies.base import Policy
from infinipot.policies.registry import registry
from infinipot.reading.catalyst import asks
from infinipot.reading.model import Model
from infinipot.reading.reader import Reader
from infinipot.recipes.options import DECLARED, SIZES
from infinipot.recipes.presets import Preset, find
from infinipot.text.tokenizer import Format, Tokenizer


@dataclass(frozen=True)
class Recipe:
    """A preset with its sizes, its settings, its catalyst and the prompt's format."""

    preset: Preset
    config: PotConfig
    knobs: Mapping[str, Any] = field(default_factory=dict)
    catalyst: str = "general"
    format: Format = "plain"

    def __post_init__(self) -> None:
        self.policy()
        mode = self.mode()  # each checks its own settings
        if self.config.pot_bits == 8:
            mode.require_rounding()

    @classmethod
    def named(
        cls,
        name: str = "infinipot",
        *,
        capacity: int = DEFAULT_CAPACITY,
        catalyst: str | None = None,
        format: Format = "plain",
        **options: Any,
    ) -> Self:
        """Return a recipe by its preset's name; what is not given is the preset's own.

        The options are those of `recipes.options` and the settings of the policy.
        """
        preset = find(name)
        given = {option: value for option, value in options.items() if value is not None}
        for option, value in given.items():
            _check(preset, option, value)
        sizes = {option: value for option, value in given.items() if option in SIZES}
        knobs = {option: value for option, value in given.items() if option not in SIZES}
        if knobs.get("units") == "sentences" and {"pool", "pooling"} & {*knobs}:
            remedy = "leave out `pool` and `pooling`, or use `units` slots"
            raise ConfigError("whole sentences are not pooled", field="pool", remedy=remedy)
        DECLARED["capacity"].check(capacity)
        recipe = cls(preset, _config(preset, capacity, sizes), knobs, catalyst or "general", format)
        _check_least(recipe, given.get("keep"), given.get("step"))
        if catalyst is not None and not recipe.uses_catalyst:
            raise recipe.no_catalyst()
        return recipe

    @classmethod
    def described(cls, told: Mapping[str, Any]) -> Self:
        """Return the recipe that `describe` told; an option younger than the telling has its default."""
        preset = find(told["name"])
        if told["format"] not in ("chat", "plain") or "capacity" not in told:
            raise KeyError("format and capacity")
        sizes = {one.name: told[one.name] for one in fields(PotConfig) if one.name in told}
        knobs = {knob: told.get(knob, usual) for knob, usual in preset.knobs.items()}
        return cls(preset, PotConfig(**sizes), knobs, told["catalyst"] or "general", told["format"])

    @property
    def uses_catalyst(self) -> bool:
        """Say whether a catalyst prompt is run at each distillation."""
        policy = self.policy()
        return policy is not None and "catalyst" in policy.needs

    @property
    def unasked(self) -> dict[str, Any]:
        """The settings that nobody gave and that are so because no question is known."""
        given = {**self.preset.fixed, **self.knobs}
        if asks(self.catalyst) or not self.preset.policy:
            return {}
        own = registry()[self.preset.policy].unasked(given)
        return {name: value for name, value in own.items() if name not in given}

    def no_catalyst(self) -> ConfigError:
        """The error of a catalyst that would never be asked."""
        problem = f"recipe '{self.preset.name}' asks no catalyst here"
        return ConfigError(problem, field="catalyst", remedy="leave out `catalyst`")

    def policy(self) -> Policy | None:
        """Return the policy with this recipe's settings."""
        if not self.preset.policy:
            return None
        return registry()[self.preset.policy](**{**self.preset.fixed, **self.unasked, **self.knobs})

    def mode(self) -> ReadingMode:
        """Return how a text is read, with this recipe's settings."""
        mode = self.preset.mode
        return replace(mode, **self.knobs) if mode.positions == "grouped" else mode

    def reader(
        self, model: Model, tokenizer: Tokenizer, question: str | None = None, bare: bool = False
    ) -> Reader:
        """Return a reader with an empty pot; with `bare`, text and question are one prompt as they are."""
        settings = self.policy(), self.config, self.format, self.catalyst, question, self.mode(), bare
        return Reader(model, tokenizer, *settings)

    def describe(self) -> dict[str, Any]:
        """Return the recipe as JSON-ready data."""
        found = {
            "name": self.preset.name,
            "bounds": self.preset.bounds,
            "catalyst": self.catalyst if self.uses_catalyst else None,
            "format": self.format,
            **asdict(self.config),
            **self.preset.knobs,
            **self.preset.fixed,
            **self.unasked,
            **self.knobs,
            **({"step": self.step} if self.preset.step else {}),
        }
        return {**found, "note": self.note} if self.note else found

    @property
    def step(self) -> int:
        """Entries dropped at a time."""
        return self.config.capacity - self.config.kept

    @property
    def note(self) -> str:
        """What the reader of a result must know about how the result was made."""
        if self.preset.step and self.step > 1:
            return f"drops {self.step} entries at a time instead of one"
        if self.preset.mode.prompt == "truncate":
            return "the middle of a text longer than the pot is not read"
        if self.preset.mode.prompt == "passages":
            return "nothing is read but the passages found for a question"
        return "" if self.preset.bounded else f"bounds {self.preset.bounds}"


def _check(preset: Preset, option: str, value: Any) -> None:
    """Refuse an option that the preset does not take, or a value outside of its declared bounds."""
    if option in DECLARED:
        DECLARED[option].check(value)
    if option not in SIZES:
        preset.knob(option)
    elif value and not preset.takes(option):
        where = "from its cache" if SIZES[option].applies == "chooses" else "while it reads"
        problem = f"recipe '{preset.name}' drops nothing {where}"
        raise ConfigError(problem, field=option, remedy=f"leave out `{option}`")


def _config(preset: Preset, capacity: int, sizes: dict[str, Any]) -> PotConfig:
    """Return the pot's sizes; a step is said as what is kept, and so is a share."""
    keep, step = sizes.pop("keep", None), sizes.pop("step", None)
    if keep is not None and step is not None:
        raise ConfigError("keep and step say the same thing", field="step", remedy="give one of them")
    check(step is None or 1 <= step < capacity, "step", step, f"use 1 to {capacity - 1}, below `capacity`")
    if keep is None:
        drop = _own_step(preset, capacity) if step is None else step
        keep = capacity - drop if drop else None
    elif isinstance(keep, float):
        keep = int(keep * capacity)
    own = {"tail": preset.tail if preset.drops else "distil", "recall": preset.recall}
    return PotConfig(capacity, keep, **{**own, **sizes})


def _check_least(recipe: Recipe, keep: float | None, step: int | None) -> None:
    """Refuse a pot too small for the policy, naming a size that works for what the user gave."""
    policy, capacity = recipe.policy(), recipe.config.capacity
    least = policy.least if policy else 0
    left = recipe.config.kept if recipe.preset.bounded else capacity
    if least <= left:
        return
    if keep is not None and least < capacity:
        remedy = f"`keep` {least}"
    elif step is not None and least < capacity:
        remedy = f"`step` {capacity - least} or less"
    elif not recipe.preset.bounded or keep is not None:
        remedy = f"`capacity` {least + (keep is not None)}"
    else:
        drop = step or _own_step(recipe.preset, capacity)
        remedy = f"`capacity` {least + drop if drop else 2 * least}"
    problem = f"recipe '{recipe.preset.name}' keeps at least {least} entries and {left} would be left"
    remedy = f"use {remedy}" + ("" if "less" in remedy else " or more")
    raise ConfigError(problem, field="capacity", remedy=remedy)


def _own_step(preset: Preset, capacity: int) -> int:
    """Entries a preset drops at a time by itself; 0 means half."""
    return min(preset.step, max(1, capacity // 8))
