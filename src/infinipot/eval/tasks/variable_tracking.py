"""Variable tracking, in the wording of RULER (Hsieh et al., 2024): a chain of assignments all over noise.

Only the first assignment names the value, so one passage that a pot forgets costs all that follow.
"""

import random
import string
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from infinipot.eval.tasks.passkey import LENGTHS, NOISE, TRIALS, Trial, Trials
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
class VariableTracking(Trials):
    """One chain in noise of every length."""

    depths: tuple[float, ...] = (0.0,)  # a chain is all over the text
    hops: int = HOPS.default
    name: str = "variable-tracking"

    def describe(self) -> dict[str, Any]:
        """Return what the examples depend on."""
        return {"lengths": list(self.lengths), "trials": self.trials, "hops": self.hops}

    def examples(self, count: Count) -> Iterator[Example]:
        """Yield the examples length by length."""
        line = count(f"{NOISE}\n" * 100) / 100
        for trial in self.each():
            yield self._example(count, line, trial)

    def score(self, prediction: str, example: Example) -> float:
        """Return the share of the chain's variables that are named."""
        return sum(name.lower() in prediction.lower() for name in example.answers) / len(example.answers)

    def _example(self, count: Count, line: float, trial: Trial) -> Example:
        source = random.Random(trial.seed)
        value = str(source.randint(10000, 99999))
        names = ["".join(source.sample(string.ascii_uppercase, 5)) for _ in range(self.hops + 1)]
        chain = [f"VAR {names[0]} = {value}"]
        chain += [f"VAR {name} = VAR {before}" for before, name in pairwise(names)]
        query = QUESTION.format(value=value)
        question = f"\nQuestion: {query}{ANSWER.format(count=len(names), value=value)}"
        fixed = count("\n".join([OPENING, *chain])) + count(question)
        lines = [NOISE] * max(0, int((trial.length - fixed) / line))
        places = sorted(source.randint(0, len(lines)) for _ in chain)
        for place, statement in reversed(list(zip(places, chain, strict=True))):
            lines.insert(place, statement)
        text, name = OPENING + "\n".join(lines), f"{trial.length}-{trial.trial}"
        facts = {"length": trial.length, "trial": trial.trial, "hops": self.hops}
        return Example(name, text, question, tuple(names), 10 * len(names), query, bare=True, facts=facts)


TASK = TaskType(
    "variable-tracking",
    "A chain of assignments scattered over noise.",
    (LENGTHS, TRIALS, HOPS),
    lambda options: VariableTracking(**options),
    tables=("length",),
)
