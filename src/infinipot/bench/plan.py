"""What to measure: plain data, checked before any model is loaded; knows no tensors."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from infinipot.common.sizes import short
from infinipot.common.suggest import find
from infinipot.core.config import DEFAULT_CAPACITY
from infinipot.errors import ConfigError, check
from infinipot.hf.shapes import SHAPES

if TYPE_CHECKING:
    from infinipot.recipes.recipe import Recipe

SKIP = 8  # first tokens of an answer that are not timed: they warm up what decoding alone uses


@dataclass(frozen=True)
class Plan:
    """Everything a run depends on."""

    model: str = ""  # name, folder, hub id or .gguf file; or else
    random: str = ""  # one of SHAPES, with random weights
    recipes: tuple[str, ...] = ("infinipot",)
    lengths: tuple[int, ...] = ()
    capacities: tuple[int, ...] = (DEFAULT_CAPACITY,)
    options: Mapping[str, Any] = field(default_factory=dict)  # each goes to the recipes that have it
    new_tokens: int = 64
    documents: tuple[int, ...] = ()
    transformers: bool = True  # measure plain transformers beside the recipes
    limit: float = 600.0  # seconds that plain transformers may be expected to take for one length
    device: str = "auto"
    dtype: str = "auto"
    weights: str = "full"  # how ours are held; plain transformers always has them in full
    threads: int | None = None
    fuse: bool = True  # on CUDA
    command: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if bool(self.model) == bool(self.random):
            raise ConfigError("a run measures one model", field="model", remedy="give `model` or `random`")
        if self.random:
            find("shape", self.random, SHAPES, field="random")
        for name, least in {"new_tokens": SKIP + 2, "threads": 1, "limit": 1}.items():
            value = getattr(self, name)
            check(value is None or value >= least, name, value, f"use at least {least}")
        if self.documents and not self.cycling():
            raise ConfigError(f"recipe '{self.recipes[0]}' has no cycle to measure", field="recipe")
        largest = max((recipe.config.capacity for recipe in self.made() if recipe.preset.bounded), default=0)
        if (shortest := min(self.lengths, default=largest + 1)) <= largest:
            problem = f"a text of {shortest} tokens fits into a pot of {largest}, so nothing is distilled"
            remedy = f"use `lengths` {short(2 * largest)} or more, or a smaller `capacity`"
            raise ConfigError(problem, field="lengths", remedy=remedy)

    def made(self) -> list["Recipe"]:
        """Return every recipe at every capacity."""
        from infinipot.recipes import presets
        from infinipot.recipes.recipe import Recipe

        found: list[Recipe] = []
        for name in self.recipes:
            preset = presets.find(name)
            given = {option: value for option, value in self.options.items() if preset.takes(option)}
            capacities = self.capacities if preset.sized else self.capacities[:1]
            found += [Recipe.named(name, capacity=capacity, **given) for capacity in capacities]
        return found

    def cycling(self) -> list["Recipe"]:
        """Return the recipes that distil while they read."""
        return [recipe for recipe in self.made() if recipe.preset.drops]
