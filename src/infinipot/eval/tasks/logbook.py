"""A long, repetitive logbook with a few facts in it: what the demo reads.

Made on the spot from a seed, so nothing is shipped and nothing can be memorised.
Most of it says the same things again and again, as real logs do; varied prose
would be too hard for a model as small as the embedded one.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

ROUTINE = (
    "The lamp was lit at dusk.",
    "The wind was light and the sea was calm.",
    "All instruments were checked and found in order.",
    "Two boats passed by and no one came ashore.",
    "The lamp was put out at dawn.",
    "There is nothing else to report.",
)
SUBJECTS = ("the pass key of the tower", "the number of the spare lamp", "the radio code of the harbour")
OPENING = "This is the logbook of a lighthouse. Most days are the same, but some entries matter."


@dataclass(frozen=True)
class Fact:
    """Something worth remembering, and the question about it."""

    statement: str
    question: str
    answer: str
    depth: float


@dataclass(frozen=True)
class Logbook:
    """The text and its facts, in the order they appear."""

    text: str
    facts: tuple[Fact, ...]


def logbook(days: int = 1000, seed: int = 0, depths: tuple[float, ...] = (0.05, 0.5, 0.95)) -> Logbook:
    """Write a logbook of that many days (about 52 tokens each) with one fact at each depth."""
    source = random.Random(seed)
    entries = [" ".join(ROUTINE)] * days
    facts = []
    for subject, depth in zip(SUBJECTS, depths, strict=False):
        answer = str(source.randint(10000, 99999))
        name = subject[0].upper() + subject[1:]
        statement = f"{name} is {answer}. Remember it. {answer} is {subject}."
        facts.append(Fact(statement, f"What is {subject}? {name} is", answer, depth))
        entries[int(depth * (days - 1))] += f"\n{statement}"
    return Logbook("\n".join((OPENING, *entries)), tuple(facts))
