"""`infinipot ask`: read files of any length, or take a kept pot; answer one question about them."""

import time
from itertools import chain
from typing import Annotated

import typer

from infinipot.cli import given as g
from infinipot.cli import screen
from infinipot.cli.expand import Given, with_options
from infinipot.cli.screen import costs, note, print_json, show_passages, stream_answer, summary, watch_reading
from infinipot.errors import InputError
from infinipot.reading.catalyst import QUESTION, catalyst_text
from infinipot.recipes.options import ANSWER, FILES, JSON, READING, SCHEMA, STORE

Question = Annotated[str, typer.Argument(help="What to ask.")]


@with_options(*FILES, g.POT, STORE, *READING, *ANSWER, SCHEMA, JSON)
def ask(question: Question, *, given: Given) -> None:
    """Read text of any length in a pot of fixed size, or take a kept pot; then answer a question about it."""
    catalyst_text(given["catalyst"] or QUESTION, question)
    if not question.strip():
        raise InputError("the question is empty")
    pot, kept = given["pot"], g.pot_of(given)
    text = g.Text.of_files(given) if kept is None else None
    asked = kept.recipe() if kept else g.recipe_of(given, QUESTION)
    wanted = g.generation_of(given, given["schema"])
    clock = [time.perf_counter()]
    engine, recipe = g.opened(given, kept, asked)
    reader = g.reader_of(given, engine, recipe, question)
    reader.check(question, wanted.max_new_tokens)
    if wanted.grammar is not None:  # refused now, not after a long text
        wanted.grammar.constraint(reader.tokenizer, reader.model.vocabulary)
    clock.append(time.perf_counter())
    if kept:
        kept.into(reader, engine, recipe)
    elif text:
        watch_reading(reader, text)
    clock.append(time.perf_counter())
    with screen.sign_of_life("looking for passages"):
        passages = reader.recall(question)
    before, answering = reader.pot.tokens, reader.answer(question, wanted, passages or None)
    first = next(answering, "")
    processed = now - before if (now := reader.pot.tokens) >= before else now  # a pot may be left out
    pieces = chain([first], answering)
    answer = "".join(pieces).strip() if given["json"] else stream_answer(pieces)
    clock.append(time.perf_counter())
    if given["json"]:
        more = {"pot": pot, "tokens_processed": processed} if kept else {}
        size = reader.progress().capacity  # null where memory is not bounded
        counts = {"tokens_read": reader.tokens_read, "cycles": reader.pot.cycles, "capacity": size}
        about = {"keep": recipe.config.kept if recipe.preset.drops else None, "recipe": recipe.describe()}
        phases = costs(reader, ("load", "read", "answer"), clock)
        more["passages"] = [passage.to_json() for passage in passages]
        print_json({"answer": answer, **counts, **about, **phases, "model": engine.name, **more})
        return
    show_passages(reader, question, passages)
    if kept:
        taken = f"pot '{pot}' of {kept.card.tokens_read:,} tokens, loaded in {clock[2] - clock[1]:.2f} s"
        note(f"{taken}, {processed:,} tokens of question")
    else:
        note(summary(reader, recipe))
