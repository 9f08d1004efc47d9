"""`infinipot chat`: talk for as long as you like, about files or a kept pot, in a pot of fixed size."""

import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from infinipot.cli import given as g
from infinipot.cli.expand import Given, flag, with_options
from infinipot.cli.screen import note, print_json, stream_answer, summary, watch_reading
from infinipot.errors import ConfigError, InputError
from infinipot.reading.catalyst import catalyst_text
from infinipot.recipes.option import Option
from infinipot.recipes.options import ANSWER, DIALOGUE, FILES, FORMAT, JSON, READING, STORE, changed
from infinipot.text.tokenizer import opening_with

if TYPE_CHECKING:
    from infinipot.engine import Engine
    from infinipot.recipes.recipe import Recipe

SYSTEM = Option("system", str, None, "What the model is told first; the pot never drops it.", metavar="TEXT")
TALKING = tuple(replace(one, shown=DIALOGUE) if one is FORMAT else one for one in READING)
HELP = """one line is one message; what is said stays in the pot, however long the talk
/help   shows this
/quit   ends the talk, as do an empty line and Ctrl-D; a kept pot stays as it was"""


@with_options(*FILES, g.POT, STORE, SYSTEM, *TALKING, *changed(ANSWER, max_new_tokens=256), JSON)
def chat(*, given: Given) -> None:
    """Talk with a model, one line a turn; end with an empty line, /quit or Ctrl-D; /help tells more.

    With --json every reply is one JSON document on its own line.
    """
    catalyst_text(given["catalyst"] or "general")
    if "-" in (given["file"] or []):
        problem = "chat reads your messages from standard input"
        raise InputError(problem, field="file", remedy="give files by name")
    kept = g.pot_of(given)
    if kept and given["system"]:
        problem = "`pot` has read its text without a system's message"
        raise ConfigError(problem, field="system", remedy="leave out `system`")
    text = g.Text.of_files(given) if given["file"] else None
    asked, wanted = kept.recipe() if kept else g.recipe_of(given), g.generation_of(given)
    engine, recipe = g.opened(given, kept, asked)
    opening: tuple[int, ...] = ()
    if not kept:
        # Where a text is only continued, a model that was taught to reply falls silent after a question.
        recipe = replace(recipe, format=given["format"] or engine.dialogue_format)
        recipe, opening = _with_system(given, engine, recipe)
    reader = g.reader_of(given, engine, recipe)
    if opening:
        reader.set_opening(opening)
    if kept:
        kept.into(reader, engine, recipe)
        note(f"pot '{kept.name}': {kept.card.title}, {kept.card.tokens_read:,} tokens")
    elif text is not None:
        watch_reading(reader, text)
        note(summary(reader, recipe))
    for message in _messages():
        try:
            pieces = reader.chat(message, wanted)
            if given["json"]:
                reply = "".join(pieces).strip()
                print_json({"reply": reply, "cycles": reader.pot.cycles, "fill": reader.pot.fill})
            else:
                stream_answer(pieces)
        except InputError as error:  # a message too long for the pot is no reason to end the talk
            told = error.worded(flag)
            print_json({"error": told}) if given["json"] else note(f"infinipot: {told}")


def _with_system(given: Given, engine: "Engine", recipe: "Recipe") -> "tuple[Recipe, tuple[int, ...]]":
    """Return a recipe that never drops a system's message, and the tokens that the talk begins with."""
    if not given["system"]:
        return recipe, ()
    opening = opening_with(engine.tokenizer, recipe.format, given["system"])
    if len(opening) > recipe.config.kept // 2:
        problem = f"the system's message has {len(opening):,} tokens, more than a pot can set aside"
        raise ConfigError(problem, field="system", remedy="use a larger `capacity`, or a shorter `system`")
    if recipe.preset.takes("opening") and not given.chosen("opening"):
        recipe = replace(recipe, config=replace(recipe.config, opening=len(opening)))
    return recipe, opening


def _messages() -> Iterator[str]:
    """Yield the user's messages, commands left out; a prompt is shown only to a person."""
    person = sys.stdin.isatty()
    while True:
        if person:
            print("\x1b[1m> \x1b[0m", end="", file=sys.stderr, flush=True)
        try:
            line = sys.stdin.readline().strip()
        except UnicodeDecodeError as error:
            raise InputError("standard input is not UTF-8 text") from error
        if line in ("", "/quit"):
            return
        if line == "/help":
            note(HELP)
        elif line.startswith("/") and line[1:].isalpha():
            note(f"there is no {line}: /help tells what there is")
        else:
            yield line
