"""Runs of one text: a recipe reads and answers, recorded; or the whole text is read, to compare with.

Section 3.4 asks what the first generated token attends to when nothing was thrown away, in texts that fit.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np

from infinipot.engine import Engine
from infinipot.errors import ConfigError
from infinipot.inspect.measures import Floats
from infinipot.reading.reader import Reader
from infinipot.reading.recording import Record, Recording
from infinipot.reading.sampling import Generation
from infinipot.recipes.presets import Preset
from infinipot.recipes.recipe import Recipe
from infinipot.text.detokenize import pieces
from infinipot.text.tokenizer import Format

SPARE = 0.8  # of the memory that is free, what the cache may take
About = Mapping[str, Any]  # what is known of a run before it starts
Read = Callable[[Reader, str], object]  # reads a text to its end


@dataclass(frozen=True)
class Run:
    """One recipe's reading of a text."""

    name: str
    record: Record
    answer: str
    seconds: float  # reading and answering
    recording_bytes: int  # memory that the recording took


@dataclass(frozen=True)
class Whole:
    """Attention of the first generated token, and novelty, with every token in the cache."""

    layers: tuple[int, ...]
    scores: Floats  # [L, H, T] of the text
    novelty: Floats  # [T]


def check(method: Preset) -> None:
    """Refuse a method of which there is nothing to record."""
    if not method.policy or method.mode.distil != "full":
        raise ConfigError(f"recipe '{method.name}' drops nothing while it reads: choose another to look into")


def record(
    reader: Reader, text: str, question: str, generation: Generation, about: About, read: Read = Reader.read
) -> Run:
    """Read the text, answer the question, return what was recorded up to the answer's beginning."""
    session, recording = reader.session, Recording()
    session.recording, session.needs = recording, session.needs | {"novelty"}  # whatever the policy asks for
    read(reader, text)
    ids = [*reader.frame.opening, *chain.from_iterable(reader.tokenizer.encode_stream([text]))]
    started = time.perf_counter()
    answering = reader.answer(question, generation)
    said = next(answering, "")  # the question is written, and the pot was distilled for it
    session.recording = None
    recording.rest([found for found in reader.pot.evidence() if found is not None], reader.pot.tokens)
    answer = (said + "".join(answering)).strip()
    seconds = session.state.seconds + time.perf_counter() - started
    about = {**about, "question": question, "answer": answer, "opening": len(reader.frame.opening)}
    found = recording.record(ids, pieces(reader.tokenizer, ids), about)
    return Run(str(about["name"]), found, answer, round(seconds, 3), recording.nbytes)


def whole(
    engine: Engine, text: str, question: str, format: Format, bare: bool = False, read: Read = Reader.read
) -> Whole:
    """Read the text whole, begin the answer, and take down what its first token attends to.

    With `bare`, text and question are a complete prompt as they are.
    """
    count = sum(map(len, engine.tokenizer.encode_stream([text]))) + len(engine.tokenizer.encode(question))
    recipe = Recipe.named("full", capacity=count + 256, format=format)  # frame and answer beside the text
    reader = engine.reader(recipe, bare=bare)
    reader.session.needs = reader.pot.needs = frozenset({"last", "novelty"})
    read(reader, text)
    count = reader.pot.tokens
    answer = reader.sequence(reader.turn(question), Generation(max_new_tokens=2), final=True)
    answer.advance(int(answer.logits.argmax()))
    layers = [(n, known) for n, known in enumerate(reader.pot.evidence()) if known is not None]
    scores = [known.last[0, :, :count].float().cpu().numpy() for _, known in layers if known.last is not None]
    novelty = layers[0][1].novelty[0, 0, :count].float().cpu().numpy()
    return Whole(tuple(n for n, _ in layers), np.stack(scores), novelty)


def check_memory(tokens: int, entry: float, free: int) -> None:
    """Refuse a text that would not fit whole: `entry` bytes a token, `free` bytes there are."""
    wanted = tokens * entry
    if wanted > SPARE * free:
        needed = f"global scoring needs {tokens:,} tokens, {wanted / 1e9:.1f} GB"
        remedy = f"use `no_global`, or a text of {int(SPARE * free / entry):,} tokens or less"
        raise ConfigError(f"{needed}; {free / 1e9:.1f} GB are free", field="global", remedy=remedy)
