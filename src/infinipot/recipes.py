"""A recipe: everything that decides how a text is read, as plain data that builds a Reader.

Only the paper's own method so far.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields
from typing import Any

from infinipot.config import PotConfig
from infinipot.policy import Policy, find
from infinipot.reader import Model, Reader
from infinipot.text import Format, Tokenizer


@dataclass(frozen=True)
class Recipe:
    """The name of a method, its sizes, its catalyst and the prompt's format."""

    name: str = "infinipot"
    config: PotConfig = field(default_factory=PotConfig)
    catalyst: str = "general"
    format: Format = "plain"

    def policy(self) -> Policy:
        """Return the policy with this recipe's knobs."""
        cls = find(self.name)
        knobs = {knob.name: getattr(self.config, knob.name) for knob in fields(cls)}
        return cls(**knobs)

    def reader(self, model: Model, tokenizer: Tokenizer, question: str | None = None) -> Reader:
        """Return a reader with an empty pot; a question is needed for the catalyst of that name."""
        return Reader(model, tokenizer, self.policy(), self.config, self.format, self.catalyst, question)

    def describe(self) -> dict[str, Any]:
        """Return the recipe as JSON-ready data."""
        return {"name": self.name, "catalyst": self.catalyst, "format": self.format, **asdict(self.config)}
