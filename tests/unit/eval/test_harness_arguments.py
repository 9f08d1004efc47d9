"""Arguments as lm-evaluation-harness gives them: understood, or refused in one line."""

from __future__ import annotations

import json
from typing import Any

import pytest

from infinipot.engine import Engine
from infinipot.errors import ConfigError
from infinipot.eval.harness import InfiniPotLM, generation
from infinipot.testing.model import ToyModel
from infinipot.testing.tokenizer import ByteTokenizer


def toy() -> Engine:
    return Engine("toy", "plain", ToyModel(), ByteTokenizer())


def lm(**options: Any) -> InfiniPotLM:
    return InfiniPotLM(toy(), **{"capacity": 256, "prompt_tokens": 32, **options})


def test_generation_settings() -> None:
    assert generation({"until": ["."]}).max_new_tokens == 256
    assert generation({"max_new_tokens": 7, "max_tokens": 9}).max_new_tokens == 7
    assert generation({"do_sample": False, "temperature": 0.7, "top_p": 0.9}).temperature == 0
    assert generation({"do_sample": True}).temperature == 1
    assert generation({"temperature": 0.5, "top_p": 1.0, "num_beams": 1}).temperature == 0.5
    with pytest.raises(ConfigError, match=r"top_p=0.9 is not supported: use gen_kwargs top_p=1"):
        generation({"do_sample": True, "temperature": 0.7, "top_p": 0.9})
    with pytest.raises(ConfigError, match="num_beams=4 is not supported"):
        generation({"num_beams": 4})
    with pytest.raises(ConfigError, match="`max_gen_toks` is 0: use at least 1"):
        generation({"max_gen_toks": 0})


def test_what_the_model_computes_with_is_understood() -> None:
    assert lm(weights="int4", threads="1", dtype="float32").recipe.config.capacity == 256
    with pytest.raises(ConfigError, match="`weights` is 'int5': use auto, int4"):
        lm(weights="int5")
    with pytest.raises(ConfigError, match="unknown model argument 'weight': did you mean 'weights'"):
        lm(weight="int4")


def test_arguments_are_texts_or_numbers() -> None:
    made = InfiniPotLM.create_from_arg_obj(
        {
            "model": toy(),
            "capacity": "1k",
            "keep": "0.25",
            "novelty": "0.3",
            "catalyst": "a b",
            "prompt_tokens": "40",
        },
        {"batch_size": "4", "device": None, "max_batch_size": None},
    )
    config, knobs = made.recipe.config, made.recipe.knobs
    assert (config.capacity, config.kept, knobs["novelty"]) == (1024, 256, 0.3)
    assert (made.prompt_tokens, made.batch_size, made.recipe.catalyst) == (40, 4, "a b")
    other = lm(recipe="h2o", step=8, heavy="64", tail="distil", opening="2")
    assert other.recipe.knobs == {"heavy": 64}
    assert (other.recipe.config.kept, other.recipe.config.tail, other.recipe.config.opening) == (
        248,
        "distil",
        2,
    )
    assert lm().recipe.catalyst == "general"
    assert json.dumps(made.get_model_info())


def test_model_args_win_over_options() -> None:
    made = InfiniPotLM.create_from_arg_obj(
        {"model": toy(), "batch_size": 3, "trust_remote_code": True}, {"batch_size": 1}
    )
    assert made.batch_size == 3
    with pytest.raises(ConfigError, match="did you mean 'recipe'"):
        InfiniPotLM.create_from_arg_string("recip=h2o", {"batch_size": 1})


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"capcity": 64}, "unknown model argument 'capcity': did you mean 'capacity'?"),
        ({"noveltly": 1}, "unknown model argument 'noveltly': did you mean 'novelty'?"),
        ({"xyz": 1}, "unknown model argument 'xyz': use one of model, recipe, "),
        ({"max_batch_size": 8}, "did you mean 'batch_size'?"),
        ({"recipe": "infinpot"}, "unknown recipe 'infinpot': did you mean 'infinipot'?"),
        ({"capacity": "many"}, "`capacity` is 'many': use a whole number such as 2048 or 4k"),
        ({"novelty": "much"}, "`novelty` is 'much': use a number"),
        ({"tail": "maybe"}, "`tail` is 'maybe'"),
        ({"prompt_tokens": 0}, "`prompt_tokens` is 0: use at least 1"),
        ({"prompt_tokens": 255}, "`prompt_tokens` is 255: use 1[0-9]+ or less, or a larger `capacity`"),
        ({"batch_size": "auto"}, "`batch_size` is 'auto': use a whole number"),
        ({"catalyst": "question"}, "use 'general' instead"),
        ({"recipe": "cap-only", "novelty": 0.5}, "novelty is what makes recipe 'cap-only'"),
    ],
)
def test_bad_arguments(options: dict[str, Any], told: str) -> None:
    pattern = told if "[" in told else told.replace("?", r"\?")
    with pytest.raises(ConfigError, match=pattern):
        lm(**options)
