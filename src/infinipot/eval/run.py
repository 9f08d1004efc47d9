"""Running examples on a loaded model: read, ask, and say what came out.

The only place that knows how an example becomes an answer. Everything above it deals in jobs and
outcomes, so examples can run here, in batches or on other machines without anyone noticing.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any, cast

import torch

from infinipot.api import Engine
from infinipot.catalyst import catalyst_text
from infinipot.errors import ConfigError, InfiniPotError
from infinipot.eval.grid import Cell
from infinipot.reader import Reader
from infinipot.sampling import Generation
from infinipot.tasks.task import Example

OUT_OF_MEMORY = "out of memory"


@dataclass(frozen=True)
class Job:
    """One example to be read and answered by one cell."""

    cell: Cell
    example: Example

    @property
    def key(self) -> tuple[str, str]:
        """What makes its row the only one of its kind."""
        return self.cell.name, self.example.id


@dataclass(frozen=True)
class Outcome:
    """What came of a job; with an error there is no prediction."""

    prediction: str = ""
    tokens_read: int = 0
    cycles: int = 0
    entries: int = 0  # held after the answer
    read_seconds: float = 0.0
    answer_seconds: float = 0.0
    error: str = ""


class Runner:
    """Runs jobs one after the other; a reader serves as long as its recipe and catalyst stay the same."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._key: Any = None
        self._reader: Reader | None = None

    def run(self, jobs: Iterable[Job]) -> Iterator[tuple[Job, Outcome]]:
        """Yield every job with its outcome, in order."""
        for job in jobs:
            yield job, self.one(job)

    def one(self, job: Job) -> Outcome:
        """Run a job; what a user can cause, and memory that ran out, end only this one."""
        try:
            return self._read_and_ask(job)
        except InfiniPotError as error:
            self._forget()
            return Outcome(error=" ".join(str(error).split()))
        except (MemoryError, RuntimeError) as error:
            self._forget()
            if not _out_of_memory(error):
                raise
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        return Outcome(error=OUT_OF_MEMORY)

    def check(self, cells: Sequence[Cell], examples: Sequence[Example]) -> None:
        """Refuse a cell that can run none of the examples, before any long work starts."""
        for cell in cells:
            first: InfiniPotError | None = None
            for example in sorted(examples, key=lambda e: len(e.query) + len(e.question)):
                try:
                    self._reader_for(Job(cell, example)).check(example.question, example.new_tokens)
                    break
                except InfiniPotError as error:
                    first = first or error
            else:
                if first:
                    raise ConfigError(f"{cell.name}: {first}")
        self._forget()

    def _read_and_ask(self, job: Job) -> Outcome:
        example, started = job.example, time.perf_counter()
        reader = self._reader_for(job)
        reader.read(example.text)
        read = time.perf_counter()
        pieces = reader.answer(example.question, Generation(example.new_tokens))
        with closing(cast("Generator[str, None, None]", pieces)):
            prediction = first_line(pieces) if example.one_line else "".join(pieces)
        answered = time.perf_counter()
        return Outcome(
            prediction,
            reader.tokens_read,
            reader.pot.cycles,
            reader.pot.fill,
            round(read - started, 4),
            round(answered - read, 4),
        )

    def _reader_for(self, job: Job) -> Reader:
        """Return an empty reader: the last one again where that makes no difference."""
        example = job.example
        recipe = job.cell.for_example(bool(example.query), example.chat)
        asked = example.query or example.question
        catalyst = catalyst_text(recipe.catalyst, asked) if recipe.uses_catalyst else ""
        key = (recipe, catalyst, example.bare)
        if self._reader is None or self._key != key:
            self._forget()  # before the next one takes its memory
            self._reader, self._key = self.engine.reader(recipe, asked, example.bare), key
        else:
            self._reader.clear()
        return self._reader

    def _forget(self) -> None:
        self._reader = self._key = None


def first_line(pieces: Iterable[str]) -> str:
    """Take pieces up to a newline, which may not be the first token itself."""
    said = ""
    for index, piece in enumerate(pieces):
        if index and "\n" in piece:
            return said + piece[: piece.index("\n")]
        said += piece
    return said


def _out_of_memory(error: BaseException) -> bool:
    """The CPU's has no type of its own."""
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or "allocate memory" in str(error)
