"""Running examples on a loaded model: the only place that knows how an example becomes an answer."""

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, islice
from operator import attrgetter

import torch

from infinipot.common.out_of_memory import out_of_memory
from infinipot.engine import Engine
from infinipot.errors import ConfigError, InfiniPotError
from infinipot.eval.grid import Cell
from infinipot.eval.tasks.task import Example
from infinipot.reading import recalled
from infinipot.reading.answer import AnswerText
from infinipot.reading.decode import DecodeBatch
from infinipot.reading.reader import Reader
from infinipot.reading.sampling import Generation
from infinipot.reading.stage import Stage
from infinipot.recipes.recipe import Recipe

CAPTURE_LATER = 16  # times a cycle comes before it is captured for a batch: one question's come less often


@dataclass(frozen=True)
class Job:
    """One example to be read and answered by one cell."""

    cell: Cell
    example: Example

    @property
    def key(self) -> tuple[str, str]:
        """What makes the job's row the only one of its kind."""
        return self.cell.name, self.example.id

    @property
    def recipe(self) -> Recipe:
        """The cell's recipe for this example."""
        return self.cell.for_example(bool(self.example.query), self.example.chat)

    @property
    def kind(self) -> Recipe:
        """The recipe without its catalyst: readers of one kind differ in nothing else."""
        return replace(self.recipe, catalyst="general")


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
    recalled: int = 0  # tokens that were read again for the question
    same_as: str = ""  # the cell whose row this is, where two cells do the same with an example


class Runner:
    """Runs jobs, up to `batch` of one kind at a time: texts one after the other, answers together."""

    def __init__(self, engine: Engine, batch: int = 1) -> None:
        self.engine, self.batch = engine, batch
        self._recipe: Recipe | None = None
        self._readers: list[Reader] = []  # serve as long as the recipe stays the same, whatever the question
        self._shared: tuple[str, Reader] | None = None  # the last text of several questions, as it was read
        self._stage: Stage | None = None  # where the readers' cycles are captured, once for all of them

    def run(self, jobs: Iterable[Job]) -> Iterator[tuple[Job, Outcome]]:
        """Yield every job with its outcome, in order."""
        for _, alike in groupby(jobs, key=attrgetter("kind")):
            while group := list(islice(alike, self.batch)):
                yield from zip(group, self.several(group), strict=True)

    def one(self, job: Job) -> Outcome:
        """Run a job; what a user can cause, and memory that ran out, end only this one."""
        return self.several([job])[0]

    def several(self, jobs: Sequence[Job]) -> list[Outcome]:
        """Run jobs of one kind together; where that fails, one by one, to see whose fault it is."""
        try:
            return self._read_and_ask(jobs)
        except InfiniPotError as error:
            self._forget()
            failed = Outcome(error=" ".join(str(error).split()))
        except (MemoryError, RuntimeError) as error:
            self._forget()
            if not out_of_memory(error):
                raise
            failed = Outcome(error="out of memory")
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        return [failed] if len(jobs) == 1 else [self.one(job) for job in jobs]

    def check(self, cells: Sequence[Cell], examples: Sequence[Example]) -> None:
        """Refuse a cell that can run none of the examples, before any long work starts."""
        shortest = sorted(examples, key=lambda e: len(e.query) + len(e.question))
        for cell in cells:
            problem = ""  # of the first example
            for example in shortest:
                try:
                    self._readers_for([Job(cell, example)])[0].check(example.question, example.new_tokens)
                    break
                except InfiniPotError as error:
                    problem = problem or str(error)
            else:
                if problem:
                    raise ConfigError(f"{cell.name}: {problem}")
        self._forget()

    def _read_and_ask(self, jobs: Sequence[Job]) -> list[Outcome]:
        examples, readers = [job.example for job in jobs], self._readers_for(jobs)
        seconds, batch, answers = [], DecodeBatch(), {}
        for example, reader in zip(examples, readers, strict=True):
            started = time.perf_counter()
            self._read(example, reader)
            seconds.append(time.perf_counter() - started)
        asked, counts = time.perf_counter(), []
        for example, reader in zip(examples, readers, strict=True):
            turn, count = _asked(example, reader)
            counts.append(count)
            sequence = reader.sequence(turn, Generation(example.new_tokens), final=True)
            answers[sequence] = Answer(reader, example.one_line)
            batch.add(sequence)
        while batch.sequences:
            for sequence, token in batch.step():
                if not answers[sequence].push(token):
                    batch.drop(sequence)
        outcomes = []
        for answer, reader, read, again in zip(answers.values(), readers, seconds, counts, strict=True):
            counted = reader.tokens_read, reader.pot.cycles, reader.pot.fill
            took = round(read, 4), round(answer.ended - asked, 4)
            outcomes.append(Outcome(answer.whole(), *counted, *took, recalled=again))
        return outcomes

    def _read(self, example: Example, reader: Reader) -> None:
        """Read a text; one that was just read for another question, by the same catalyst, is taken over."""
        if example.shared and self._shared is not None:
            text, known = self._shared
            if text is example.text and known.session.catalyst == reader.session.catalyst:
                reader.take_over(known)
                return
        reader.read(example.text)
        if example.shared:
            self._shared = example.text, reader.fork()

    def _readers_for(self, jobs: Sequence[Job]) -> list[Reader]:
        """Return empty readers, set to the jobs' questions: the last ones again where they serve."""
        if self._recipe != jobs[0].kind:
            self._forget()  # before the next ones take their memory
            self._recipe = jobs[0].kind
        for place, job in enumerate(jobs):
            example, recipe = job.example, job.recipe
            asked = example.query or example.question
            if place == len(self._readers):
                self._readers.append(self._reader(recipe, asked, example.bare))
            else:
                self._readers[place].clear()
                self._readers[place].set_question(asked, recipe.catalyst, bare=example.bare)
        return self._readers[: len(jobs)]

    def _reader(self, recipe: Recipe, asked: str, bare: bool) -> Reader:
        """Return one more reader; several share what is captured, or each would capture it for itself."""
        reader = self.engine.reader(recipe, asked, bare)
        if self.batch > 1 and reader.session.graphs is not None:
            if self._stage is None:
                self._stage = Stage(self.engine.reader(recipe, asked, bare).session)
                self._stage.session.capture_after = CAPTURE_LATER
            reader.session.stage = self._stage
        return reader

    def _forget(self) -> None:
        self._recipe, self._readers, self._shared, self._stage = None, [], None, None


def _asked(example: Example, reader: Reader) -> tuple[list[int], int]:
    """Return what to ask after reading again what the question needs, and how many tokens that is."""
    question = example.query or example.question
    again = recalled.read_again(reader, question, reader.config.recalled)
    passages = reader.recall(question)
    count = sum(len(reader.tokenizer.encode(passage.text)) for passage in passages)
    return recalled.prompt(reader, question, passages, example.question), again + count


class Answer:
    """An answer's text as it comes; one of one line ends at a newline that is not in its first token."""

    def __init__(self, reader: Reader, one_line: bool) -> None:
        self._text = AnswerText(reader.tokenizer, reader.frame.stop_strings)
        self._one_line = one_line
        self._end: int | None = None  # where the line ends in the text
        self.ended = time.perf_counter()

    def push(self, token: int | None) -> bool:
        """Take a token, None where there is none left; say whether more may follow."""
        self.ended = time.perf_counter()
        if token is None:
            return False
        before, piece = len(self._text.text), self._text.push(token)
        if self._one_line and self._text.tokens > 1 and "\n" in piece:
            self._end = before + piece.index("\n")
        return self._end is None and not self._text.stopped

    def whole(self) -> str:
        """Return the answer."""
        if self._end is None:
            self._text.flush()
        return self._text.text[: self._end]
