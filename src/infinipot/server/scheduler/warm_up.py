"""What a server will do again and again, done before it serves: compiled, captured, its memory measured."""

import logging
from collections.abc import Callable, Sequence

import torch

from infinipot.core.cuda.graphs import Graphs
from infinipot.reading.decode import DecodeBatch
from infinipot.reading.plan import BLOCK, CAPTURE_AFTER
from infinipot.reading.reader import Reader
from infinipot.reading.sampling import Generation
from infinipot.reading.stage import Stage
from infinipot.reading.step_group import StepGroup, shared_sizes
from infinipot.server.scheduler.pace import LEAST

STEPS = 4  # of decoding: a plain one, one that is captured, and two that are replayed
WIDEST = Generation(16 * STEPS, temperature=1.0, top_p=0.5, logprobs=20)  # what takes most memory a token
MOST_GRAPHS = 32  # of reading: one for every place in a cycle where a chunk may begin, and some to spare
LONG_TEXT = 16  # cycles of a text after which all wait while one with another catalyst is captured for it
MOST_LATE = 64  # graphs that are captured in a server's life: each seems to keep some of the host's memory

log = logging.getLogger(__name__)


def touch(reader: Reader) -> None:
    """Read and say a little, so that the reader's pot is there, and take all of the pot's memory."""
    reader.read("warm")
    "".join(reader.answer("up", Generation(1)))
    reader.clear()
    reader.pot.occupy()  # the bound counts on it, and too little memory is noticed now


def set_stage(readers: Sequence[Reader], another: Callable[[], Reader]) -> None:
    """Let all readers' cycles be captured once, in a pot of their own; where nothing is captured, nowhere."""
    if readers[0].session.graphs is None or len(readers) < 2:
        return
    session = another().session
    session.graphs = Graphs(session.pot, most=MOST_GRAPHS)
    session.pot.lengths |= {BLOCK, *_halves(LEAST["cuda"])}  # worth compiling for
    for reader in readers:
        reader.session.stage = Stage(session)


def warm_up(readers: Sequence[Reader], at_once: int, given_up: Callable[[], bool]) -> bool:
    """Read full cycles in chunks of every size, and answer in batches of every size; say if all was done."""
    session = readers[0].session
    stage = session.stage
    captures = session.graphs is not None
    try:
        if stage is not None:
            stage.session.capture_after = 1
        sizes = [BLOCK, *(_halves(LEAST["cuda"]) if captures else ())]
        if not all(_read(readers[0], size, given_up) for size in sizes):
            return False
        answered = _answer(readers[:at_once], captures, given_up)
        return answered and (not captures or _take_prompts(readers[0], given_up))
    finally:
        session.block = BLOCK
        if stage is not None:
            late(stage)
        for reader in readers:
            reader.clear()


def late(stage: Stage) -> None:
    """From now on capture seldom: only what one long text repeats, never for many short ones."""
    stage.session.capture_after = CAPTURE_AFTER
    if stage.session.graphs is not None:
        stage.session.graphs.since, stage.session.graphs.left = LONG_TEXT, MOST_LATE


def _read(reader: Reader, size: int, given_up: Callable[[], bool]) -> bool:
    """Read two full cycles and a steady one, the last to be captured, and answer a little."""
    log.info("getting ready: texts in chunks of %d tokens", size)
    vocabulary, capacity = reader.model.vocabulary, reader.config.capacity
    cycles = 2 if reader.session.graphs is None else 4
    tokens = [index % vocabulary for index in range(1, cycles * capacity)]
    reader.clear()
    reader.session.block = size
    for _ in reader.reading_tokens([tokens]):
        if given_up():
            return False
    list(reader.generate(tokens[:8], Generation(4)))
    return True


def _answer(readers: Sequence[Reader], captures: bool, given_up: Callable[[], bool]) -> bool:
    """Decode a few tokens of all readers at once; where graphs are captured, of fewer too."""
    sequences = [reader.sequence([1, 2, 3], WIDEST) for reader in readers]
    fewer = [1 << power for power in range(len(readers).bit_length()) if 1 << power < len(readers)]
    for count in [len(readers), *reversed(fewer if captures else [])]:
        log.info("getting ready: %d answers at once", count)
        batch = DecodeBatch(sequences[:count])
        for _ in range(STEPS):
            if given_up():
                return False
            batch.step()
        batch.close()
    return True


def _take_prompts(reader: Reader, given_up: Callable[[], bool]) -> bool:
    """Write a prompt in steps of every size, where pots let a prompt have several rows of a step."""
    reader.clear()
    session, asked = reader.session, reader.sequence([1], WIDEST, later=True)
    for size in shared_sizes(session.pot) if session.joins_batches else ():
        log.info("getting ready: prompts, %d tokens at once", size)
        group = StepGroup([asked], [[1] * size])
        for _ in range(STEPS):
            if given_up():
                return False
            group.step(torch.ones(1, dtype=torch.long, device=session.model.device))
    return True


def _halves(least: int) -> list[int]:
    return [size for times in range(1, BLOCK.bit_length()) if (size := BLOCK >> times) >= least]
