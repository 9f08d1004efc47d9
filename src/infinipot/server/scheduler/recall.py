"""What requests archive in their slot, and the passages a question finds there again."""

import logging
import sqlite3
from collections.abc import Iterable, Sequence
from typing import Any

from infinipot.reading.reader import Reader
from infinipot.reading.recalled import AROUND
from infinipot.recall.passages import Passage
from infinipot.recall.words import terms
from infinipot.server.scheduler.requests import Message

log = logging.getLogger("infinipot.server")


def archive(reader: Reader, messages: Iterable[Message]) -> None:
    """Archive messages as turns of the talk in a reader's slot."""
    if reader.archive is not None:
        for message in messages:
            reader.archive.add_turn(message.role, message.content)


def find(reader: Reader, question: str, beside: int) -> list[Passage]:
    """Return passages for a question; with `beside` tokens of a message they leave half of the pot alone.

    An archive that cannot be searched costs an answer its passages, never the answer.
    """
    room = reader.config.capacity // 2 - beside - len(reader.tokenizer.encode(question)) - AROUND
    try:
        return reader.recall(question, min(reader.config.recalled, room))
    except sqlite3.Error as error:
        log.warning("an archive cannot be searched (%s): nothing is recalled", error)
        return []


def described(passages: Sequence[Passage], question: str) -> tuple[dict[str, Any], ...]:
    """Return passages as a caller sees them: where they stand, the sentence that fits best, the text."""
    told = "source", "place", "start", "end", "turn", "text"
    words = terms(question)
    return tuple(
        {**{name: getattr(one, name) for name in told}, "quote": one.quote(words)} for one in passages
    )
