"""Answers that are decoded together: what fails for one ends that one, and so does memory that runs out."""

import logging
from collections.abc import Callable
from contextlib import suppress

from infinipot.common.out_of_memory import out_of_memory
from infinipot.reading.decode import DecodeBatch
from infinipot.reading.sequence import Sequence, SequenceError
from infinipot.server.scheduler.requests import error_for_caller

log = logging.getLogger("infinipot.server")
Told = list[tuple[Sequence, int | None]]


class AnswerBatch:
    """The batch, which answers join and leave, and what is done when a step of it fails."""

    def __init__(self, release: Callable[[], None]) -> None:
        self.batch, self._release = DecodeBatch(), release  # `release` gives back memory that nothing uses

    def __len__(self) -> int:
        return len(self.batch.sequences)

    def step(self) -> tuple[Told, list[tuple[Sequence, Exception]]]:
        """Return the next token of every answer (None at its end), and those that failed, with what to say.

        Where memory runs out for all, the step is made again after giving back what can be; if that is not
        enough, without the answer that came last, and so on. The others do not notice.
        """
        failed: list[tuple[Sequence, Exception]] = []
        told, tries = None, 0
        while told is None and len(self):
            told, tries = self._try(failed, tries), tries + 1
            if told is None:
                self._release()  # not before the error is gone, which holds on to tensors
        return told or [], failed

    def _try(self, failed: list[tuple[Sequence, Exception]], tries: int) -> Told | None:
        try:
            return self.batch.step()
        except SequenceError as error:
            ended, cause = [error.sequence], error.__cause__ or error
        except BaseException as error:
            ended, cause = list(self.batch.sequences), error
            if out_of_memory(error):
                ended = ended[-1:] if tries else []
                log.warning("out of memory while answering %d at once", len(self))
        for one in ended:
            failed.append((one, error_for_caller(cause)))
            with suppress(Exception):  # its pot is emptied
                self.batch.drop(one)
        return None
