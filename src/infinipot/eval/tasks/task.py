"""What an evaluation is made of: examples to read and ask about, and how an answer is scored.

Tasks know neither tensors nor models: lengths are counted by whatever counts them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from infinipot.eval.tasks.rows import BadRow

Count = Callable[[str], int]  # tokens of a text


@dataclass(frozen=True)
class Example:
    """One text, one question, and what would be right.

    `bare` means that text and question are a complete prompt as they are; otherwise the
    prompt format puts its own words between them. `chat` says whether they go into the
    model's chat template; None leaves that to the model.
    """

    id: str  # the same in every run, and of no other example of the task
    text: str  # goes into the pot
    question: str  # follows it
    answers: tuple[str, ...]
    new_tokens: int
    query: str = ""  # what the question catalyst (CaP-Q) asks; the question where empty
    bare: bool = False
    chat: bool | None = None
    one_line: bool = False  # the answer ends at a newline, after at least one token
    facts: Mapping[str, str | int | float] = field(
        default_factory=dict
    )  # length, depth, ...: go into its row


class Task(Protocol):
    """A named set of examples."""

    @property
    def name(self) -> str:
        """What it is called on the command line."""

    def examples(self, count: Count) -> Iterator[Example | BadRow]:
        """Yield the examples, always the same ones in the same order; a row that makes none says why."""

    def score(self, prediction: str, example: Example) -> float:
        """From 0, wrong, to 1, right."""
