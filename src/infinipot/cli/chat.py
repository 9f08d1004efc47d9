"""`infinipot chat`: talk for as long as you like, about files if you wish, in a pot of fixed size."""

import sys
from collections.abc import Iterator
from dataclasses import replace

from infinipot.cli import given as g
from infinipot.cli.expand import Given, flag, with_options
from infinipot.cli.screen import note, print_json, stream_answer, summary, watch_reading
from infinipot.errors import InputError
from infinipot.reading.catalyst import catalyst_text
from infinipot.recipes.options import ANSWER, DIALOGUE, FILES, FORMAT, JSON, READING, changed

TALKING = tuple(replace(one, shown=DIALOGUE) if one is FORMAT else one for one in READING)


@with_options(*FILES, *TALKING, *changed(ANSWER, max_new_tokens=256), JSON)
def chat(*, given: Given) -> None:
    """Talk with a model, one line a turn; end with an empty line, /quit or Ctrl-D.

    With --json every reply is one JSON document on its own line.
    """
    catalyst_text(given["catalyst"] or "general")
    if "-" in (given["file"] or []):
        problem = "chat reads your messages from standard input"
        raise InputError(problem, field="file", remedy="give files by name")
    text = g.Text.of_files(given) if given["file"] else None
    recipe, wanted = g.recipe_of(given), g.generation_of(given)
    engine = g.open_engine(given)
    # Where a text is only continued, a model that was taught to reply falls silent after a question.
    recipe = replace(recipe, format=given["format"] or engine.dialogue_format)
    reader = g.reader_of(given, engine, recipe)
    if text is not None:
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
            note(f"infinipot: {error.worded(flag)}")


def _messages() -> Iterator[str]:
    """Yield the user's lines; a prompt is shown only to a person."""
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
        yield line
