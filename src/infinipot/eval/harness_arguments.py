"""What lm-eval's arguments mean: texts and numbers as `--model_args` and `--gen_kwargs` give them.

Nothing is dropped in silence: an argument is understood, or refused with the nearest name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from infinipot.common.suggest import hint
from infinipot.errors import ConfigError
from infinipot.reading.sampling import Generation
from infinipot.recipes.options import DECLARED, SIZES
from infinipot.recipes.preset import Preset, parse_knob
from infinipot.recipes.presets import find
from infinipot.recipes.recipe import Recipe

PROMPT_TOKENS, MOST = 128, 256
OWN = ("model", "recipe", "device", "dtype", "prompt_tokens", "batch_size", "max_gen_toks")
LENGTHS = ("max_gen_toks", "max_new_tokens", "max_tokens", "max_completion_tokens")  # the first one counts
DRAWS = ("top_p", "top_k", "min_p", "typical_p")  # mean nothing where the likeliest token is taken
NEUTRAL = {"top_p": 1, "top_k": 0, "min_p": 0, "typical_p": 1, "num_beams": 1, "repetition_penalty": 1}


def generation(asked: Mapping[str, Any], most: int = MOST) -> Generation:
    """Read lm-eval's generation settings; one that would change the answer and is not known is refused."""
    lengths = [asked[name] for name in LENGTHS if asked.get(name) is not None]
    drawn = asked.get("do_sample")
    temperature = asked.get("temperature")
    heat = 0.0 if drawn is False else float(temperature if temperature is not None else bool(drawn))
    for name, value in asked.items():
        if name in ("until", "do_sample", "temperature", *LENGTHS) or value is None:
            continue
        if (name in DRAWS and not heat) or (name in NEUTRAL and value == NEUTRAL[name]):
            continue
        remedy = f"use gen_kwargs {name}={NEUTRAL[name]}" if name in NEUTRAL else "leave it out"
        raise ConfigError(f"generation setting {name}={value} is not supported", field=name, remedy=remedy)
    # lm-eval seeds torch, so what is drawn can be drawn again.
    seed = int(torch.randint(2**62, ())) if heat else None
    return Generation(whole("max_gen_toks", lengths[0] if lengths else most), heat, seed)


def recipe_of(name: str, given: Mapping[str, Any]) -> Recipe:
    """Make a recipe of what stood in `--model_args`, texts or numbers."""
    preset = find(name)
    options = {key: _value(key, str(value), preset) for key, value in given.items() if value is not None}
    return Recipe.named(name, format="plain", **options)


def _value(key: str, text: str, preset: Preset) -> Any:
    if key in SIZES or key == "catalyst":
        return DECLARED[key].parse(text)
    if key not in preset.knobs and key not in preset.fixed:
        names = (*OWN, *DECLARED, *preset.knobs)
        raise ConfigError(f"unknown model argument '{key}'", field=key, remedy=hint(key, names))
    return parse_knob(f"{key}={text}", preset)[1]


def whole(name: str, value: Any, least: int = 1) -> int:
    """Read a whole number."""
    try:
        found = int(str(value))
    except ValueError:
        found = least - 1
    if found < least:
        remedy = f"use a whole number of at least {least}"
        raise ConfigError(f"{name} is '{value}'", field=name, remedy=remedy)
    return found
