"""Lists of options to cells: every recipe with every combination of the options that apply to it.

A cell's name is made of what differs from the preset's own defaults: the same recipe, however a user asked
for it, has the same name in every run.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from itertools import product
from typing import Any

from infinipot.core.config import DEFAULT_CAPACITY, PotConfig
from infinipot.errors import ConfigError
from infinipot.reading.catalyst import QUESTION, SHORT, catalyst_text
from infinipot.recipes.options import SIZES
from infinipot.recipes.presets import Preset, find
from infinipot.recipes.recipe import Recipe
from infinipot.text.tokenizer import Format

BY_TASK = "by-task"  # LongBench's catalyst: `question` for question-answering tasks, `general` for the others
POOLS = ("pool", "pooling")


@dataclass(frozen=True)
class Grid:
    """The values of every option that was asked for; an option that is not there is the preset's own."""

    recipes: tuple[str, ...] = ("infinipot",)
    capacities: tuple[int, ...] = (DEFAULT_CAPACITY,)
    catalysts: tuple[str, ...] = (QUESTION,)
    options: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)  # sizes and settings, or their texts

    def cells(self, format: Format = "plain") -> tuple["Cell", ...]:
        """Return every cell once, in the order asked for."""
        for catalyst in self.catalysts:
            if catalyst != BY_TASK:
                catalyst_text(catalyst, "")
        chosen = [find(name) for name in self.recipes]
        self._check_used(chosen)
        found = (cell for preset in chosen for cell in self._cells(preset, format))
        return tuple({cell.name: cell for cell in found}.values())

    def _check_used(self, chosen: list[Preset]) -> None:
        """Refuse an option that no recipe takes: a typing error, or a disappointment."""
        for name in self.options:
            if any(_takes(preset, name) for preset in chosen):
                continue
            if name not in SIZES:
                chosen[0].knob(name)
            raise ConfigError(f"none of the recipes takes `{name}`", field=name, remedy="leave it out")

    def _cells(self, preset: Preset, format: Format) -> Iterator["Cell"]:
        known = [name for name in self.options if _takes(preset, name)]
        capacities = self.capacities if preset.sized else (DEFAULT_CAPACITY,)
        for capacity, *values in product(capacities, *(self.options[name] for name in known)):
            told = zip(known, values, strict=True)
            given = {name: preset.parse(name, v) if isinstance(v, str) else v for name, v in told}
            if given.get("units") == "sentences" or given.get("novelty") == 1:  # nothing is pooled
                given = {name: value for name, value in given.items() if name not in POOLS}
            recipe = Recipe.named(preset.name, capacity=capacity, format=format, **{**_pure(preset), **given})
            for name in self.catalysts if recipe.uses_catalyst else ("",):
                catalyst = SHORT.get(name, name)
                asked = QUESTION if catalyst in (BY_TASK, "") else catalyst
                yield Cell(replace(recipe, catalyst=asked), catalyst)


@dataclass(frozen=True)
class Cell:
    """One recipe with all its sizes and settings, and the catalyst it is to use."""

    recipe: Recipe
    catalyst: str  # as in `catalyst_text`, or BY_TASK; empty where the recipe asks none

    @property
    def name(self) -> str:
        """What the cell is called in rows and tables; two cells differ if and only if their names do."""
        preset = self.recipe.preset
        words = [preset.name, *([str(self.recipe.config.capacity)] if preset.sized else []), *self._sizes()]
        usual = {**preset.knobs, **replace(self.recipe, knobs={}).unasked}
        told = ((name, v) for name, v in self._settings.items() if v != usual[name])
        words += [f"{name}={v:g}" if isinstance(v, float) else f"{name}={v}" for name, v in told]
        if self.catalyst:
            words.append(self.catalyst if len(self.catalyst.split()) == 1 else f'"{self.catalyst}"')
        return " ".join(words)

    @property
    def _settings(self) -> dict[str, Any]:
        """Every setting said out loud: what hangs on whether a question is known is the cell's own."""
        return {**self.recipe.preset.knobs, **self.recipe.unasked, **self.recipe.knobs}

    def _sizes(self) -> Iterator[str]:
        """Yield the sizes that are not the preset's own at this capacity."""
        preset, config = self.recipe.preset, self.recipe.config
        usual = Recipe.named(preset.name, capacity=config.capacity, **_pure(preset)).config
        for size in fields(PotConfig):
            if size.name == "keep":
                if preset.bounded and config.kept != usual.kept:
                    yield f"step={self.recipe.step}" if preset.step else f"keep={config.kept}"
            elif getattr(config, size.name) != getattr(usual, size.name):
                yield f"{size.name}={SIZES[size.name].worded(getattr(config, size.name))}"

    def describe(self) -> dict[str, Any]:
        """Return every parameter as JSON-ready data; null where one means nothing to the recipe."""
        preset, config = self.recipe.preset, self.recipe.config
        sizes = {"capacity": preset.sized and config.capacity, "keep": preset.drops and config.kept}
        found = {"catalyst": self.catalyst, **sizes}
        return {**self.recipe.describe(), **{name: value or None for name, value in found.items()}}

    def for_example(self, asks: bool, chat: bool | None) -> Recipe:
        """Return the recipe for an example that asks a question or not, inside a chat template or not."""
        catalyst = self.catalyst or "general"
        if catalyst == BY_TASK:
            catalyst = QUESTION if asks else "general"
        format: Format = self.recipe.format if chat is not False else "plain"
        return replace(self.recipe, catalyst=catalyst, format=format, knobs=self._settings)


def catalyst_names(given: Iterable[str]) -> tuple[str, ...]:
    """Read names that may be texts: `general,question`, but a text of several words keeps its commas."""
    found: list[str] = []
    for text in given:
        pieces = [part.strip() for part in text.split(",") if part.strip()]
        found += pieces if all(len(piece.split()) == 1 for piece in pieces) else [text.strip()]
    return tuple(dict.fromkeys(found))


def _pure(preset: Preset) -> dict[str, Any]:
    """Return what differs from a user's defaults: a method is measured alone unless recall is asked for."""
    return {"recall": 0} if preset.drops else {}


def _takes(preset: Preset, option: str) -> bool:
    """Say whether an option makes cells of a preset; a preset that drops step by step is asked for `step`."""
    if option in ("keep", "step"):
        return preset.drops and bool(preset.step) == (option == "step")
    return preset.takes(option)
