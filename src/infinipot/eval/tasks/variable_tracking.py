"""Variable tracking of RULER (Hsieh et al., 2024): a chain of assignments scattered over noise.

Only the first assignment names the value; the others name the variable before. All of the chain must be
found for a full score, so one passage that a pot forgets costs all that follow. The wording is RULER's.
"""

from __future__ import annotations

import random
import string
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from infinipot.eval.tasks.passkey import LENGTHS, NOISE, TRIALS
from infinipot.eval.tasks.task import Count, Example, TaskType
from infinipot.recipes.option import Option

OPENING = "Memorize and track the chain(s) of variable assignment hidden in the following text.\n\n"
QUESTION = "Find all variables that are assigned the value {value} in the text above."
ANSWER = (
    " Answer: According to the chain(s) of variable assignment in the text above, {count} variables are "
    "assigned the value {value}, they are:"
)
HOPS = Option("hops", int, 4, "Assignments after the first.", least=1, most=20)


@dataclass(frozen=True)
class VariableTracking:
    """One chain in noise of every length."""

    lengths: tuple[int, ...] = LENGTHS.default
    trials: int = TRIALS.default
    hops: int = HOPS.default
    seed: int = 0
    name: str = "variable-tracking"

    def describe(self) -> dict[str, Any]:
        """Return what the examples depend on."""
        return {"lengths": list(self.lengths), "trials": self.trials, "hops": self.hops}

    def examples(self, count: Count) -> Iterator[Example]:
        """Yield the examples length by length."""
        line = count(f"{NOISE}\n" * 100) / 100
        for length in self.lengths:
            for trial in range(self.trials):
                yield self._example(count, line, length, trial)

    def score(self, prediction: str, example: Example) -> float:
        """Return the share of the chain's variables that are named."""
        return sum(name.lower() in prediction.lower() for name in example.answers) / len(example.answers)

    def _example(self, count: Count, line: float, length: int, trial: int) -> Example:
        source = random.Random(self.seed + 1000 * trial + length)
        value = str(source.randint(10000, 99999))
        names = ["".join(source.sample(string.ascii_uppercase, 5)) for _ in range(self.hops + 1)]
        chain = [f"VAR {names[0]} = {value}"]
        chain += [f"VAR {name} = VAR {before}" for before, name in pairwise(names)]
        query = QUESTION.format(value=value)
        question = f"\nQuestion: {query}{ANSWER.format(count=len(names), value=value)}"
        fixed = count("\n".join([OPENING, *chain])) + count(question)
        lines = [NOISE] * max(0, int((length - fixed) / line))
        places = sorted(source.randint(0, len(lines)) for _ in chain)
        for place, statement in reversed(list(zip(places, chain, strict=True))):
            lines.insert(place, statement)
        text, facts = OPENING + "\n".join(lines), {"length": length, "trial": trial, "hops": self.hops}
        most = 10 * len(names)
        return Example(f"{length}-{trial}", text, question, tuple(names), most, query, bare=True, facts=facts)


TASK = TaskType(
    "variable-tracking",
    "A chain of assignments scattered over noise.",
    (LENGTHS, TRIALS, HOPS),
    lambda options: VariableTracking(**options),
    tables=("length",),
)
