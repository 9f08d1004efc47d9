"""What the reader asks of a tokenizer, and the way back from ids to text.

`infinipot.hf.tokenizer` and `infinipot.testing.tokenizer` bring real ones.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal, Protocol

from infinipot.errors import ConfigError

Format = Literal["chat", "plain"]
Tools = Sequence[Mapping[str, Any]]  # functions a model may call, as OpenAI describes them

CHAT_ASK_BEFORE = "\n\n"
PLAIN = ("\n", "", "\n\n", "\n")  # before and after the first question, before and after each further one


@dataclass(frozen=True)
class Frame:
    """The ids around the texts of a conversation: opening, document, ask, answer, turn, answer, ..."""

    opening: tuple[int, ...] = ()  # before the document
    ask_before: tuple[int, ...] = ()  # between the document and the first question
    ask_after: tuple[int, ...] = ()  # after the first question, up to where the answer starts
    turn_before: tuple[int, ...] = ()  # between an answer (its stop token not yet fed) and the next question
    turn_after: tuple[int, ...] = ()  # after each further question, up to where the answer starts
    stop_strings: tuple[str, ...] = ()  # texts that end an answer where the format has no token for it


@dataclass(frozen=True)
class Spellings:
    """What every id of a small vocabulary stands for."""

    bytes: tuple[bytes, ...]
    control: tuple[int, ...]  # ids that are no text


def around(roles: Sequence[str], frame: Frame) -> list[tuple[int, ...]]:
    """The ids before each message, and after the last, where a format knows only questions and answers.

    A system's message is part of the question it precedes.
    """
    parts, answered = [frame.opening], False
    for role, following in pairwise((*roles, "assistant")):
        if "assistant" not in (role, following):
            parts.append(frame.ask_before)
        elif role == "assistant":
            answered = True
            parts.append(frame.turn_before)
        else:
            parts.append(frame.turn_after if answered else frame.ask_after)
    return parts


def chat_frame(tokenizer: "Tokenizer") -> Frame | None:
    """Return the layout of a conversation, where the model has a chat template that can be used."""
    try:
        return tokenizer.frame("chat")
    except ConfigError:
        return None


def opening_with(tokenizer: "Tokenizer", format: Format, system: str) -> tuple[int, ...]:
    """Return the ids before a text or talk that a system's message goes before."""
    before, between, _ = tokenizer.dialogue(["system", "user"], format)
    return (*before, *tokenizer.encode(system), *between)


class Tokenizer(Protocol):
    """What the rest of the project may ask of a tokenizer."""

    @property
    def stop_ids(self) -> frozenset[int]:
        """Ids that end an answer."""

    @property
    def control_ids(self) -> frozenset[int]:
        """Ids that no text yields."""

    def spellings(self) -> str | Spellings:
        """What every id stands for: a `tokenizer.json`, or a list."""

    def encode(self, text: str) -> list[int]:
        """Ids of the text alone; no text can yield a control token."""

    def encode_stream(self, pieces: Iterable[str]) -> Iterator[list[int]]:
        """The ids of `encode("".join(pieces))`, part by part, in bounded memory."""

    def decode(self, ids: Sequence[int]) -> str:
        """The text of the ids."""

    def frame(self, format: Format) -> Frame:
        """The ids that go around document, questions and answers."""

    def dialogue(self, roles: Sequence[str], format: Format, tools: Tools = ()) -> list[tuple[int, ...]]:
        """The ids before each message of a conversation, and those between the last one and its answer."""
