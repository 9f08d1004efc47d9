"""The library's front door: `load` a model by name, or `attach` one you already have."""

from __future__ import annotations

from typing import Any

from infinipot.config import DEFAULT_CAPACITY, PotConfig, Pooling
from infinipot.hf.catalog import DEFAULT_MODEL
from infinipot.hf.loading import load as load_weights
from infinipot.hf.model import HFModel
from infinipot.hf.tokenizer import HFTokenizer
from infinipot.reader import Reader
from infinipot.recipes import Recipe
from infinipot.text import Format


def load(
    name: str = DEFAULT_MODEL,
    *,
    capacity: int = DEFAULT_CAPACITY,
    keep: int | None = None,
    novelty: float = 0.5,
    catalyst: str = "general",
    question: str | None = None,
    pool: int = 1,
    pooling: Pooling = "mean",
    opening: int = 0,
    format: Format | None = None,
    device: str = "auto",
    dtype: str = "auto",
) -> Reader:
    """Load a model (alias, hub id, folder or .gguf file) and return a reader with an empty pot.

    The prompt format defaults to what measures better for the model.
    """
    config = PotConfig(capacity, keep, novelty, pool, pooling, opening)
    loaded = load_weights(name, device=device, dtype=dtype)
    recipe = Recipe(config=config, catalyst=catalyst, format=format or loaded.format)
    tokenizer = HFTokenizer(loaded.tokenizer, add_bos=loaded.add_bos, eos_ids=loaded.stop_ids)
    return recipe.reader(HFModel(loaded.model), tokenizer, question)


def attach(model: Any, tokenizer: Any, **options: Any) -> Reader:
    """Return a reader on a transformers model you have loaded; options as for `load`.

    The model's attention implementation becomes "infinipot", which serves it with and
    without a pot.
    """
    question, format = options.pop("question", None), options.pop("format", None)
    catalyst = options.pop("catalyst", "general")
    wrapped = HFTokenizer(tokenizer)
    chosen = format or ("chat" if getattr(tokenizer, "chat_template", None) else "plain")
    recipe = Recipe(config=PotConfig(**options), catalyst=catalyst, format=chosen)
    return recipe.reader(HFModel(model), wrapped, question)
