"""`infinipot read`: read files of any length into a pot, and keep the pot."""

import time
from itertools import chain

from infinipot.cli import given as g
from infinipot.cli.expand import Given, with_options
from infinipot.cli.screen import costs, note, print_json, summary, watch_reading
from infinipot.errors import InputError
from infinipot.reading.catalyst import catalyst_text
from infinipot.recipes.option import Option
from infinipot.recipes.options import FILES, JSON, READING, STORE
from infinipot.store import open_store
from infinipot.text.files import Hashed, title

KEEPING = (
    Option("save", str, None, "Keep the pot under this name.", metavar="NAME"),
    Option("append", str, None, "Read on where this kept pot ended.", metavar="NAME"),
    Option("replace", bool, False, "With `save`: replace a pot of that name."),
    Option("title", str, None, "What the text is called.", shown="the file's name"),
    Option("int8", bool, False, "Keep keys and values in int8: smaller, not exact."),
)


@with_options(*FILES, *KEEPING, STORE, *READING, JSON)
def read(*, given: Given) -> None:
    """Read text of any length in a pot of fixed size, and keep the pot for `infinipot ask --pot`."""
    from infinipot.store.match import card_of

    catalyst_text(given["catalyst"] or "general")
    name, store = target(given), open_store(given["store"])
    text = g.Text.of_files(given)
    with store.lock(name):  # from before the first token on: nobody reads an hour for nothing
        kept = g.find(given, store, name) if given["append"] is not None else None
        if kept is None:
            store.refuse(name, given["replace"])
        asked = kept.recipe() if kept else g.recipe_of(given)
        clock = [time.perf_counter()]
        engine, recipe = g.opened(given, kept, asked)
        reader = g.reader_of(given, engine, recipe)
        if kept:
            kept.into(reader, engine, recipe)
        clock.append(time.perf_counter())
        source = Hashed(chain(["\n\n"], text.pieces) if kept else text.pieces)  # as between files
        watch_reading(reader, g.Text(source, text.total))
        clock.append(time.perf_counter())
        before = kept.card if kept else None
        named = ", ".join("standard input" if file == "-" else title(file) for file in given["file"])
        # A pot that is read on keeps its own title.
        called = named if given["title"] is None and not kept else given["title"] or ""
        told = called, source.digest.hexdigest(), source.bytes, before
        card = card_of(engine, recipe, reader, *told, "int8" if given["int8"] else None)
        replaced = given["replace"] or kept is not None
        card = store.save(name, reader.state(), card, replaced, reader.archive)
        if problem := reader.archive and (reader.archive.problem or reader.archive.unkept):
            note(f"{problem}: nothing of this pot will be recalled")
    clock.append(time.perf_counter())
    if given["json"]:
        phases = costs(reader, ("load", "read", "save"), clock)
        more = {"tokens_added": card.tokens_read - before.tokens_read} if before else {}
        print_json({"pot": name, "store": store.where, **card.to_json(), **more, **phases})
    else:
        if before:
            added = f"{card.tokens_read - before.tokens_read:,} tokens of {named}"
            print(f"added {added} to pot '{name}', which has read {card.tokens_read:,} in all")
        print(f"pot '{name}' is kept in {store.where} ({card.bytes / 1e6:,.1f} MB)")
        note(summary(reader, recipe))


def target(given: Given) -> str:
    """Return the name of the pot that is to be written."""
    save, append = given["save"], given["append"]
    if (save is None) == (append is None):
        problem = "a pot is made by `save`, or read on by `append`"
        raise InputError(problem, field="save", remedy="give `save` NAME or `append` NAME, one of them")
    if append is not None and given["replace"]:
        raise InputError("`append` replaces nothing", field="replace", remedy="leave out `replace`")
    return str(append if save is None else save)
