"""Lists of options to cells: every recipe with every combination of the options that apply to it.

An option that means nothing to a recipe is not part of its cells, so no cell is there twice. A cell's
name is made of what differs from its method's own defaults: the same recipe, however it was asked for,
has the same name in every run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

from infinipot.core.config import DEFAULT_CAPACITY, Tail
from infinipot.errors import ConfigError
from infinipot.reading.catalyst import QUESTION, SHORT, catalyst_text
from infinipot.recipes.preset import Preset, parse_knob
from infinipot.recipes.presets import find
from infinipot.recipes.recipe import Recipe
from infinipot.text.tokenizer import Format

BY_TASK = "by-task"
"""The catalyst of LongBench's table: `question` for tasks that ask one, `general` for the others."""

POOLS = ("pool", "pooling")


@dataclass(frozen=True)
class Grid:
    """What was asked for; each field holds one or several values, none meaning the recipe's own."""

    recipes: tuple[str, ...] = ("infinipot",)
    capacities: tuple[int, ...] = (DEFAULT_CAPACITY,)
    keeps: tuple[int | float, ...] = ()  # entries, or a share of the capacity
    steps: tuple[int, ...] = ()
    catalysts: tuple[str, ...] = (QUESTION,)
    knobs: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # novelty, pool and other settings
    tail: Tail | None = None

    def cells(self, format: Format = "plain") -> tuple[Cell, ...]:
        """Return every cell once, in the order asked for."""
        for catalyst in self.catalysts:
            if catalyst != BY_TASK:
                catalyst_text(catalyst, "")
        self._check_used([find(name) for name in self.recipes])
        found = (cell for name in self.recipes for cell in self._cells(find(name), format))
        return tuple({cell.name: cell for cell in found}.values())

    def _check_used(self, chosen: list[Preset]) -> None:
        """Refuse an option that no recipe takes: it would be a typing error, or a disappointment."""
        for knob in self.knobs:
            if not any(knob in method.knobs for method in chosen):
                chosen[0].knob(knob)
        unused = {
            "keep": self.keeps and not any(map(_keeps, chosen)),
            "step": self.steps and not any(method.step for method in chosen),
        }
        for option, wrong in unused.items():
            if wrong:
                raise ConfigError(f"none of the recipes takes --{option}: leave it out")

    def _cells(self, method: Preset, format: Format) -> Iterator[Cell]:
        sizes = product(
            self.capacities if _sized(method) else (DEFAULT_CAPACITY,),
            (self.keeps or (None,)) if _keeps(method) else (None,),
            (self.steps or (None,)) if method.step else (None,),
        )
        asks = Recipe.named(method.name).uses_catalyst
        for (capacity, keep, step), settings in product(sizes, self._settings(method)):
            recipe = Recipe.named(
                method.name,
                capacity=capacity,
                keep=int(keep * capacity) if isinstance(keep, float) else keep,
                step=step,
                tail=self.tail if method.policy and method.bounded else None,
                format=format,
                **settings,
            )
            if asks and not recipe.uses_catalyst:  # all is novelty: there is no score to be pooled
                recipe = replace(recipe, knobs={k: v for k, v in settings.items() if k not in POOLS})
            for catalyst in self.catalysts if recipe.uses_catalyst else ("",):
                yield Cell(recipe, SHORT.get(catalyst, catalyst))

    def _settings(self, method: Preset) -> Iterator[dict[str, Any]]:
        """Yield every combination of the settings that the method has."""
        known = [knob for knob in self.knobs if knob in method.knobs]
        for values in product(*(self.knobs[knob] for knob in known)):
            pairs = zip(known, values, strict=True)
            yield dict(parse_knob(f"{knob}={value}", method) for knob, value in pairs)


@dataclass(frozen=True)
class Cell:
    """One recipe with all its sizes and settings, and the catalyst it is to use."""

    recipe: Recipe
    catalyst: str  # as in `catalyst_text`, or BY_TASK; empty where the recipe asks none

    @property
    def name(self) -> str:
        """What the cell is called in rows and tables; two cells differ if and only if their names do."""
        method, config = self.recipe.preset, self.recipe.config
        words = [method.name, *([str(config.capacity)] if _sized(method) else [])]
        usual = Recipe.named(method.name, capacity=config.capacity) if method.policy else None
        if usual and config.kept != usual.config.kept and method.bounded:
            words.append(f"step={self.recipe.step}" if method.step else f"keep={config.kept}")
        if usual and config.tail != usual.config.tail:
            words.append(f"tail={config.tail}")
        words += self._changed()
        return " ".join([*words, *([self._catalyst()] if self.catalyst else [])])

    def _changed(self) -> list[str]:
        """The settings that are not the method's own."""
        given, usual = self.recipe.knobs, self.recipe.preset.knobs
        return [
            f"{knob}={_plain(given[knob])}" for knob in usual if given.get(knob, usual[knob]) != usual[knob]
        ]

    def _catalyst(self) -> str:
        return self.catalyst if len(self.catalyst.split()) == 1 else f'"{self.catalyst}"'

    def describe(self) -> dict[str, Any]:
        """Every parameter as JSON-ready data; null where one means nothing to the recipe."""
        method, found = self.recipe.preset, self.recipe.describe()
        found["catalyst"] = self.catalyst or None
        found["capacity"] = self.recipe.config.capacity if _sized(method) else None
        found["keep"] = self.recipe.config.kept if method.policy and method.bounded else None
        return found

    def for_example(self, asks: bool, chat: bool | None) -> Recipe:
        """Return the recipe for an example that asks a question or not, inside a chat template or not."""
        catalyst = self.catalyst or "general"
        if catalyst == BY_TASK:
            catalyst = QUESTION if asks else "general"
        format: Format = self.recipe.format if chat is not False else "plain"
        return replace(self.recipe, catalyst=catalyst, format=format)


def _plain(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _sized(method: Preset) -> bool:
    """Say whether the capacity bounds anything."""
    return method.bounded or bool(method.policy)


def _keeps(method: Preset) -> bool:
    """Say whether the user chooses how much a distillation leaves; some methods drop a step at a time."""
    return bool(method.policy) and method.bounded and not method.step
