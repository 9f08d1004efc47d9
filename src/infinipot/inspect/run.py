"""A recipe reads a text and answers, recorded."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from infinipot.errors import ConfigError
from infinipot.reading.reader import Reader
from infinipot.reading.recording import Record, Recording
from infinipot.reading.sampling import Generation
from infinipot.recipes.preset import Preset
from infinipot.text.detokenize import Detokenizer
from infinipot.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class Run:
    """One recipe's reading of a text."""

    name: str
    record: Record
    answer: str
    seconds: float  # reading and answering
    recording_bytes: int  # memory that the recording took


def check(method: Preset) -> None:
    """Refuse a method of which there is nothing to record."""
    if not method.policy or method.mode.distil != "full":
        raise ConfigError(f"recipe '{method.name}' drops nothing while it reads: choose another to look into")


def attach(reader: Reader) -> Recording:
    """Record this reader from now on; novelty is computed even where its policy asks for none."""
    reader.session.recording = recording = Recording()
    reader.session.needs = reader.session.needs | {"novelty"}
    return recording


def record(reader: Reader, text: str, question: str, generation: Generation, about: Mapping[str, Any]) -> Run:
    """Read the text, answer the question, return what was recorded up to the answer's beginning."""
    attach(reader)
    reader.read(text)
    ids = [token for part in reader.tokenizer.encode_stream([text]) for token in part]
    return finish(reader, ids, question, generation, about)


def finish(
    reader: Reader, ids: Sequence[int], question: str, generation: Generation, about: Mapping[str, Any]
) -> Run:
    """Answer, after the text of these ids was read, and return what was recorded."""
    recording, started = reader.session.recording, time.perf_counter()
    assert recording is not None, "attach first"
    read = [*reader.frame.opening, *ids]
    answering = reader.answer(question, generation)
    said = next(answering, "")  # the question is written, and the pot was distilled for it
    reader.session.recording = None
    known = [found for found in reader.pot.evidence() if found is not None]
    recording.rest(known, reader.pot.tokens)
    answer = (said + "".join(answering)).strip()
    about = {**about, "question": question, "answer": answer, "opening": len(reader.frame.opening)}
    found = recording.record(read, pieces(reader.tokenizer, read), about)
    seconds = reader.session.state.seconds + time.perf_counter() - started
    return Run(str(about["name"]), found, answer, round(seconds, 3), recording.nbytes)


def pieces(tokenizer: Tokenizer, ids: Sequence[int]) -> list[str]:
    """The text of each token; a character of several tokens is the last one's."""
    text = Detokenizer(tokenizer)
    found = [text.push(token) for token in ids]
    if found:
        found[-1] += text.flush()
    return found
