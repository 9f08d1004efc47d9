"""What requests archive in their slot, and the passages a question finds there again."""

import logging
import sqlite3
from collections.abc import Iterable
from typing import Any

from infinipot.errors import InputError
from infinipot.reading.reader import Reader
from infinipot.reading.recalled import AROUND, passages_for, wordings
from infinipot.recall.words import terms
from infinipot.server.scheduler.prompts import Prompt
from infinipot.server.scheduler.requests import Message

log = logging.getLogger("infinipot.server")
TOLD = ("source", "place", "start", "end", "turn", "text")  # of a passage


def archive(reader: Reader, messages: Iterable[Message]) -> None:
    """Archive messages as turns of the talk in a reader's slot; an archive that fails costs no answer."""
    if (kept := reader.archive) is None:
        return
    try:
        for message in messages:
            kept.add_turn(message.role, message.content)
    except sqlite3.Error as error:
        log.warning("a conversation cannot be archived (%s): its turns are not recalled", error)
        reader.archive = None


def recalling(reader: Reader, prompt: Prompt, question: str, most: int) -> tuple[Prompt, dict[str, Any]]:
    """Return a prompt with passages for its question, and the passages as a caller sees them.

    Message and passages leave half of the pot alone. What cannot be searched, or fitted, is not recalled.
    """
    room = reader.config.capacity // 2 - len(prompt.tail) - len(reader.tokenizer.encode(question)) - AROUND
    try:
        # A follow-up is completed by what was said before. The model is not asked for words: others wait.
        talk = prompt.message is not None
        queries = wordings(reader.archive, question, talk) if reader.archive else [question]
        passages = passages_for(reader, question, min(reader.config.recalled, room), queries)
        longer = prompt.recalling(reader.tokenizer, question, passages)
        reader.require(len(longer.tail), most)
    except (sqlite3.Error, InputError) as error:
        log.warning("nothing is recalled: %s", error)
        return prompt, {}
    words = terms(question)
    told = [{name: getattr(one, name) for name in TOLD} | {"quote": one.quote(words)} for one in passages]
    return longer, {"passages": told} if told else {}
