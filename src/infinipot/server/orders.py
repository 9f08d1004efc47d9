"""What a request asks of the kitchen, and what comes back: plain data, no HTTP, no tensors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from infinipot.errors import InfiniPotError
from infinipot.reading.reader import Progress
from infinipot.reading.sampling import Generation
from infinipot.store import Card

Role = Literal["system", "user", "assistant"]


class BusyError(InfiniPotError):
    """The queue is full, or the server is closing."""

    def __init__(self, message: str, retry_after: int, closing: bool = False) -> None:
        super().__init__(message)
        self.retry_after, self.closing = retry_after, closing


class FaultError(InfiniPotError):
    """The server's fault, not the caller's: out of memory, or an error of our own."""


@dataclass(frozen=True)
class Message:
    """One message of a conversation."""

    role: Role
    content: str


@dataclass(frozen=True)
class AnswerOptions:
    """How an answer is wanted."""

    generation: Generation = field(default_factory=Generation)
    stops: tuple[str, ...] = ()
    catalyst: str = "question"


@dataclass(frozen=True)
class Talk:
    """Answer the last message of a conversation, about a kept pot if one is named."""

    tenant: str
    messages: Sequence[Message]
    options: AnswerOptions = AnswerOptions()
    pot: str | None = None
    keep: bool = True  # the conversation's pot, for the next turn


@dataclass(frozen=True)
class Continue:
    """Go on from a text."""

    tenant: str
    text: str
    options: AnswerOptions = AnswerOptions()


@dataclass(frozen=True, eq=False)
class Brew:
    """Read a file into a kept pot."""

    tenant: str
    name: str
    file: Path  # checked UTF-8
    title: str
    sha256: str
    bytes: int
    append: bool = False
    replace: bool = False
    catalyst: str = "general"


Order = Talk | Continue | Brew


@dataclass(frozen=True)
class Usage:
    """Tokens of one answer."""

    prompt: int  # all of them, whether read now or known before
    cached: int  # known before
    completion: int


@dataclass(frozen=True)
class Reading:
    """A forward pass was made."""

    progress: Progress
    processed: int  # tokens of this request that are done, those known before included
    cached: int
    total: int | None  # tokens of this request; None where the text is still being split
    seconds: float
    bytes: int = 0  # of a file, how much was taken so far


@dataclass(frozen=True)
class Piece:
    """Some more of the answer."""

    text: str


@dataclass(frozen=True)
class Answered:
    """The answer is whole."""

    finish: Literal["stop", "length"]
    usage: Usage


@dataclass(frozen=True)
class Kept:
    """The pot is in the store."""

    card: Card
    name: str


Event = Reading | Piece | Answered | Kept
