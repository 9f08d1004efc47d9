"""A conversation as tokens: what is read into the pot, and the last message, or its end, which is asked."""

import hashlib
import json
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Self

from infinipot.reading.recalled import PROMPT
from infinipot.recall.passages import Passage
from infinipot.server.scheduler.requests import Message
from infinipot.text.tokenizer import Format, Tokenizer, Tools

QUESTION = 400  # characters of a message, from its end, that a catalyst takes for the question
BLOCK = 4096  # ids handed over at once


@dataclass(frozen=True)
class Prompt:
    """A request's tokens."""

    head: "array[int]"  # to be read; compact, since there may be millions
    tail: list[int]  # to be answered
    message: str | None = None  # the last one, where all of it is in the tail
    before: Sequence[int] = ()  # that message, in a template
    after: Sequence[int] = ()

    @property
    def total(self) -> int:
        """Tokens in all."""
        return len(self.head) + len(self.tail)

    def blocks(self) -> Iterator[list[int]]:
        """The head, part by part."""
        return (self.head[start : start + BLOCK].tolist() for start in range(0, len(self.head), BLOCK))

    def recalling(self, tokenizer: Tokenizer, question: str, passages: Sequence[Passage]) -> Self:
        """Return the prompt with passages between its message and the question, which is asked again."""
        if not passages:
            return self
        found = "\n\n".join(passage.text.strip() for passage in passages)
        text = PROMPT.format(question=self.message or "", passages=found, asked=f"Question: {question}")
        if self.message is not None:
            told = [*self.before]
        else:  # the message's beginning is read already
            told, text = self.tail[: len(self.tail) - len(self.after)], text.removeprefix("Question: ")
        return replace(self, tail=[*told, *tokenizer.encode(text), *self.after])


def conversation(
    messages: Sequence[Message],
    tokenizer: Tokenizer,
    format: Format,
    known: int,
    about: bool,
    capacity: int,
    tools: Tools = (),
) -> Prompt:
    """Return the tokens of a conversation whose first `known` messages, or the text it is about, are read."""
    around = tokenizer.dialogue([message.role for message in messages], format, tools)
    if about:
        around[0] = tokenizer.frame(format).ask_before
    ids = array("i")
    for before, message in list(zip(around, messages, strict=False))[known:-1]:
        _add(ids, tokenizer, before, message.content)
    start = len(ids)
    _add(ids, tokenizer, around[-2], messages[-1].content)
    ids.extend(around[-1])
    cut = _cut(ids, start, capacity)
    whole = messages[-1].content if len(cut.head) == start else None
    return replace(cut, message=whole, before=around[-2], after=around[-1])


def continuation(text: str, tokenizer: Tokenizer, format: Format, capacity: int) -> Prompt:
    """Return the tokens of a bare text to go on from."""
    ids = array("i")
    _add(ids, tokenizer, tokenizer.frame(format).opening, text)
    return _cut(ids, 0, capacity)


def _add(ids: "array[int]", tokenizer: Tokenizer, before: Sequence[int], text: str) -> None:
    ids.extend(before)
    for part in tokenizer.encode_stream([text]):
        ids.extend(part)


def _cut(ids: "array[int]", start: int, capacity: int) -> Prompt:
    """Split off what is not distilled first: the last message, which begins at `start`, or its end."""
    at = max(start, len(ids) - max(1, capacity // 4))
    return Prompt(ids[:at], ids[at:].tolist())


def question(text: str) -> str:
    """Return what a text asks: its last paragraph, or the end of that."""
    paragraph = text.rstrip().rpartition("\n\n")[2]
    if len(paragraph) <= QUESTION:
        return paragraph.strip()
    return paragraph[-QUESTION:].partition(" ")[2] or paragraph[-QUESTION:]


def conversation_names(tenant: str, pot: str, messages: Sequence[Message], tools: Tools = ()) -> list[str]:
    """Return a name for every beginning of a conversation: only a tenant who knows all of it can make one."""
    digest = hashlib.blake2b(json.dumps([tenant, pot, *tools]).encode(), digest_size=16)
    found = [digest.hexdigest()]
    for message in messages:
        digest.update(json.dumps([message.role, message.content.strip()]).encode())
        found.append(digest.hexdigest())
    return found
