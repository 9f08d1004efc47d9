"""`infinipot inspect`: read a text with several recipes and show what each of them kept."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from infinipot.cli import given as g
from infinipot.cli.expand import Given, with_options
from infinipot.cli.screen import note, print_json, watch_reading
from infinipot.errors import ConfigError, InputError
from infinipot.reading.catalyst import QUESTION, SHORT, catalyst_text
from infinipot.recipes.option import Option
from infinipot.recipes.options import ANSWER, COMPUTING, FILES, FORMAT, JSON, MODEL, RECIPE, SIZES

if TYPE_CHECKING:
    from infinipot.engine import Engine
    from infinipot.inspect.run import Read, Run, Whole
    from infinipot.reading.sampling import Generation
    from infinipot.recipes.recipe import Recipe

PAPER = "swa,ccd,cap-only:general,cap-only:question,infinipot:question"
_COMPARED = f"Recipes to compare; 'paper' is {PAPER}, not pooled."
RECIPES = replace(RECIPE, default="infinipot,sirllm", help=_COMPARED, metavar="NAME[:CATALYST],...")
LENGTH = replace(ANSWER[0], default=64)
QUESTIONED = Option("question", str, None, "What to ask.", short="q", shown="needed", metavar="TEXT")
OUT = Option("out", Path, None, "Folder to write to.", shown="needed")
_WHOLE = "Read the whole text once without a pot, to see what the answer attends to; needs its memory."
GLOBAL = Option("global", bool, True, _WHOLE)
ASKED = (QUESTIONED, OUT, GLOBAL)


@with_options(
    *ASKED, *FILES, MODEL, RECIPES, SIZES["capacity"], SIZES["keep"], FORMAT, *COMPUTING, LENGTH, JSON
)
def inspect(*, given: Given) -> None:
    """Show what the pot kept: one page, pictures and numbers, for recipes that keep equally many entries."""
    question, out = given["question"] or "", given["out"]
    if not question.strip():
        problem = "the question is empty" if given["question"] is not None else "nothing is asked"
        raise InputError(problem, field="question", remedy="give `question` TEXT")
    if out is None:
        raise InputError("there is no place for the page", field="out", remedy="give `out` FOLDER")
    pieces = g.Text.of_files(given).pieces
    chosen = recipes(given["recipe"], given["capacity"], given["keep"], question)
    wanted, text = g.generation_of(given), "".join(pieces)
    if not text.strip():
        raise InputError("the text is empty: there is nothing to look into")
    engine = g.open_engine(given)
    layout = given["format"] or engine.format
    chosen = {name: replace(one, format=layout) for name, one in chosen.items()}
    runs = [_run(engine, name, one, text, question, wanted) for name, one in chosen.items()]
    scored = _whole(engine, runs[0], layout, text, question) if given["global"] else None
    from infinipot.inspect.page import write_report

    config = runs[0].record.about["recipe"]
    facts = {  # what the page says about how it came about
        "question": question,
        "text": f"{', '.join(Path(name).name for name in given['file'])}: {len(runs[0].record.ids):,} tokens",
        "model": f"{engine.name}, {engine.dtype}",
        "pot": f"{config['capacity']:,} entries, {config['keep']:,} kept by every recipe",
        "global scoring": "one run with the whole text in the cache" if scored else "not run",
    }
    written, told = write_report(runs, scored, out, facts)
    if given["json"]:
        print_json({"files": [str(path) for path in written], **told})
        return
    for run in runs:
        print(f"{run.name}: {run.answer}")
    note(f"the page: {written[0]}, and {len(written) - 1} files beside it")


def recipes(listed: str, capacity: int, keep: int | None, asked: str, pool: int = 0) -> "dict[str, Recipe]":
    """The recipes by the names they are shown by; all keep equally many entries, so that pots compare."""
    from infinipot.inspect.run import check
    from infinipot.recipes.presets import find
    from infinipot.recipes.recipe import Recipe

    found, (words, pool) = {}, (PAPER, 1) if listed.strip() == "paper" else (listed, pool)
    for word in words.split(","):
        name, _, catalyst = word.strip().partition(":")
        check(preset := find(name))
        own = pool or None if "pool" in preset.knobs else None
        one = Recipe.named(name, capacity=capacity, keep=keep or capacity // 2, tail="distil", pool=own)
        if catalyst and not one.uses_catalyst:
            problem = f"recipe '{name}' asks no catalyst"
            raise ConfigError(problem, field="recipe", remedy=f"leave out ':{catalyst}'")
        if one.uses_catalyst:
            one = replace(one, catalyst=catalyst or QUESTION)
            catalyst_text(one.catalyst, asked)
        found[f"{name} {SHORT.get(catalyst, catalyst)}".strip()] = one
    return found


def _run(engine: "Engine", name: str, recipe: "Recipe", text: str, asked: str, wanted: "Generation") -> "Run":
    from infinipot.inspect.run import record

    reader = engine.reader(recipe, asked)
    reader.archive = None  # what is looked into is the pot
    reader.check(asked, wanted.max_new_tokens)
    about: dict[str, Any] = {"name": name, "model": engine.name, "recipe": recipe.describe()}
    about["entry_bytes"] = reader.pot.nbytes / recipe.config.capacity
    run = record(reader, text, asked, wanted, about, _watched(name))
    tokens = len(run.record.ids) - run.record.about["opening"]
    note(f"{name}: {tokens:,} tokens, {run.record.cycles:,} cycles, {run.seconds:.1f} s")
    return run


def _watched(label: str) -> "Read":
    return lambda reader, text: watch_reading(reader, g.Text([text], len(text)), label)


def _whole(engine: "Engine", run: "Run", layout: Any, text: str, question: str) -> "Whole":
    from infinipot.inspect import run as runs
    from infinipot.models.memory import available

    free = available(str(engine.model.device))
    runs.check_memory(len(run.record.ids), run.record.about["entry_bytes"], free)
    return runs.whole(engine, text, question, layout, read=_watched("whole text"))
