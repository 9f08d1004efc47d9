"""Several tasks as one, as LongBench is 21; `task` in an example's facts says whose it is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from infinipot.errors import ConfigError
from infinipot.eval.tasks.rows import BadRow
from infinipot.eval.tasks.task import Count, Example, Task


@dataclass(frozen=True)
class Several:
    """The examples of its parts, one part after the other."""

    name: str
    parts: tuple[Task, ...]

    def __post_init__(self) -> None:
        names = [part.name for part in self.parts]
        if not names or len(set(names)) < len(names):
            raise ConfigError(f"{self.name} needs tasks of different names, not {', '.join(names) or 'none'}")

    def examples(self, count: Count) -> Iterator[Example | BadRow]:
        """Yield the examples of every part."""
        for part in self.parts:
            for found in part.examples(count):
                if isinstance(found, Example):
                    facts = {**found.facts, "task": part.name}
                    found = replace(found, id=f"{part.name}/{found.id}", facts=facts)
                yield found

    def score(self, prediction: str, example: Example) -> float:
        """Score as the example's own task does."""
        (part,) = (part for part in self.parts if part.name == example.facts["task"])
        return part.score(prediction, example)
