"""`infinipot harness`: lm-evaluation-harness's own command line, with our recipes as a model."""

import re
import sys
from argparse import ArgumentParser
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Annotated

import typer

from infinipot.errors import ConfigError
from infinipot.recipes.options import DECLARED, ENGINE, RECIPE

CONTEXT = {"ignore_unknown_options": True, "allow_interspersed_args": False}  # what is not ours is passed on
MODEL = "infinipot"
Words = Annotated[list[str] | None, typer.Argument(metavar="LM-EVAL-OPTIONS", show_default=False)]
HELP = f"""Run EleutherAI's lm-evaluation-harness on a recipe; every option is passed to lm-eval.

infinipot harness --model_args recipe=infinipot,capacity=2048 --tasks lambada_openai --limit 20

Model arguments: {", ".join(one.name for one in (*ENGINE, RECIPE, *DECLARED.values()))},
prompt_tokens (last tokens of a context that are its prompt), max_gen_toks, every setting of the recipe.

lm-eval's own options: infinipot harness run --help. Its tasks: infinipot harness ls tasks.
"""


def harness(words: Words = None) -> None:
    """Run lm-eval with our recipes as a model; `HELP` is what the command line shows."""
    import infinipot.eval.harness  # noqa: F401  registers the model, or says what to install

    before, sys.argv = sys.argv, ["lm-eval", *completed(words or [])]  # lm-eval reads the process's own
    try:
        import_module("lm_eval.__main__").cli_evaluate()
    except ValueError as error:
        if "Tasks not found" not in str(error):
            raise
        raise ConfigError(str(error), remedy="`infinipot harness ls tasks` lists them") from error
    finally:
        sys.argv = before


def completed(words: Sequence[str]) -> list[str]:
    """Put in our model, and any device for it, where nothing else is asked for."""
    count = 1 if words[:1] in (["run"], ["ls"], ["validate"]) else 0
    command, rest = list(words[:count]), list(words[count:])
    if command in (["ls"], ["validate"]):
        return list(words)
    parser = ArgumentParser(add_help=False, allow_abbrev=False)
    for names in (("--model", "-M"), ("--device",), ("--config", "-C")):
        parser.add_argument(*names)
    given = parser.parse_known_args(rest)[0]
    config = Path(given.config or "")  # lm-eval itself refuses one that is not there
    filed = re.findall(r"^(\w+):", config.read_text(), re.MULTILINE) if config.is_file() else []
    model = given.model or ("" if "model" in filed else MODEL)
    ours = ["--model", MODEL] if model and not given.model else []
    if model == MODEL and not given.device and "device" not in filed:
        ours += ["--device", "auto"]  # lm-eval's own default is cuda:0
    return [*command, *ours, *rest]
