"""THE list of what a user can set: commands, grid, harness, manifest, saved card and docs are made from it.

A new option of a recipe is declared in `SIZES`, is a field of `core.config.PotConfig`, is used in `reading/`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from infinipot.core.config import ALL, DEFAULT_CAPACITY, UNITS
from infinipot.models.catalog import DEFAULT_MODEL
from infinipot.recipes.option import Option

POT, REPLY = "Model and pot", "Answer"
THEIRS, DIALOGUE = "the recipe's", "chat where the model has a template"

MODEL = Option("model", str, DEFAULT_MODEL, "Alias, hub id, folder or .gguf file.", POT, short="m")
DEVICE = Option("device", str, "auto", "auto, cpu, cuda, cuda:1, mps.", POT)
DTYPE = Option("dtype", str, "auto", "auto, float32, bfloat16, float16, mixed.", POT)
_HELD = "How weights are held: auto, as in their file; int4, int8, fp8; or full."
WEIGHTS = Option("weights", str, "auto", _HELD, POT, choices=("auto", "int4", "int8", "fp8", "full"))
_THREADS = "Threads to compute with on a CPU; fewer while other programs are busy, unless named."
THREADS = Option("threads", int, None, _THREADS, POT, least=1, most=512, shown="torch's")
COMPUTING = (DEVICE, DTYPE, WEIGHTS, THREADS)
ENGINE = (MODEL, *COMPUTING)

RECIPE = Option("recipe", str, "infinipot", "Method; `infinipot recipes` lists them.", POT, short="r")
OWN_FORMAT = "the model's own"
FORMAT = Option("format", str, None, "Prompt layout.", POT, choices=("chat", "plain"), shown=OWN_FORMAT)
SET = Option("set", str, None, "Setting of the recipe, e.g. heavy=64.", POT, metavar="NAME=VALUE", many=True)
_ENTRIES = "KV entries per layer and head, never exceeded."
_END = "A text's end, before a question: distil it, fill the pot with it, or leave it raw."
_PASSAGES = "Tokens of passages that are found in the text and read again before an answer."
_JUDGED = "Passages at most that the model itself judges before an answer, one by one: slow on a CPU."
_DOUBTED = "0; 32 on a card where words find little"
_MEANT = "Sentences at most that are found by meaning where words find little (see `infinipot models list`)."
_AMOUNT: dict[str, Any] = {
    "metavar": "TOKENS|all",
    "shown": "a quarter of `capacity`",
    "words": (("all", ALL),),
}
_BITS = "Bits of a pot's keys and values: 8 takes less than half the memory."
_POOLED = "7 where slots are chosen one by one; 1 = off"
_UNITS = "What stays or goes together when a pot is distilled."
_PROMPT = "general, general-1, general-2, question, padding, unrelated, or a text of your own."


def _named(*options: Option) -> dict[str, Option]:
    return {option.name: option for option in options}


SIZES = _named(  # fields of PotConfig by the same names, and `step`
    Option("capacity", int, DEFAULT_CAPACITY, _ENTRIES, POT, most=99_999_999, applies="sized"),
    Option("keep", int, None, "Entries left after a distillation.", POT, shown="half", share=True),
    Option("step", int, None, "Entries dropped at a time; another way to say `keep`.", POT, shown=THEIRS),
    Option("opening", int, None, "First slots that are never dropped.", POT, shown="0", applies="chooses"),
    Option("closing", int, None, "Last slots that are never dropped.", POT, shown="0", applies="chooses"),
    Option("recall", int, None, _PASSAGES, POT, applies="recalls", **_AMOUNT),
    Option("judge", int, None, _JUDGED, POT, applies="recalls", shown=_DOUBTED),
    Option("meaning", int, None, _MEANT, POT, applies="recalls", shown="48"),
    Option("tail", str, None, _END, POT, choices=("distil", "fill", "raw"), shown=THEIRS),
    Option("pot_bits", int, None, _BITS, POT, metavar="8|16", shown="16", applies="sized"),
)
CHOICE = _named(  # how a method chooses what to keep; a setting of the policy by the same name, if it has one
    Option("catalyst", str, None, _PROMPT, POT, metavar="NAME|TEXT", shown="question in ask, else general"),
    Option("novelty", float, None, "Share of kept entries chosen by novelty.", POT, shown="0.5"),
    Option("pool", int, None, "Neighbouring slots whose scores are pooled.", POT, most=99_999, shown=_POOLED),
    Option("pooling", str, None, "How they are pooled.", POT, choices=("mean", "max"), shown="mean"),
    Option("units", str, None, _UNITS, POT, choices=UNITS, shown="slots for a question, else sentences"),
)
DECLARED: Mapping[str, Option] = SIZES | CHOICE
"""Everything `Recipe.named` takes by declaration; further settings are the policy's own."""
RECALLING = ("recall", "judge", "meaning")  # what may be another for every question
METHOD = (RECIPE, *DECLARED.values(), SET)
"""What makes a recipe, beside the layout of its prompts."""
ARCHIVE = Option("archive", bool, True, "Keep what is read on disk, so that passages can be recalled.", POT)
READING = (MODEL, *METHOD, ARCHIVE, FORMAT, *COMPUTING)
"""What a command takes that reads a text."""

ANSWER = (
    Option("max_new_tokens", int, 128, "Longest answer.", REPLY),
    Option("temperature", float, 0.0, "0 always takes the likeliest token.", REPLY),
    Option("seed", int, None, "Makes sampling repeatable.", REPLY),
)
SCHEMA = Option("schema", Path, None, "File with a JSON schema that the answer must follow.", REPLY)
JSON = Option("json", bool, False, "Print exactly one JSON document.", REPLY)
_TEXT = "Text, Markdown, HTML, PDF, DOCX or EPUB; a folder, pattern or URL; repeat for several, - for input."
_PRIVATE = "Read a URL at an address of a private network too, such as http://localhost."
FILES = (
    Option("file", str, None, _TEXT, short="f", many=True),
    Option("allow_private", bool, False, _PRIVATE),
)
_PLACE = "Where pots are kept: a folder, or an address such as s3://bucket/pots."
STORE = Option("store", str, None, _PLACE, shown="your own")


def changed(options: Iterable[Option], **defaults: Any) -> tuple[Option, ...]:
    """Return the options with other defaults, where a command has its own."""
    return tuple(replace(one, default=defaults.get(one.name, one.default)) for one in options)
