"""A lighthouse's logbook of any length with a few facts in it: varied prose is too hard for small models."""

import random
from typing import NamedTuple

ROUTINE = (
    "The lamp was lit at dusk. The wind was light and the sea was calm. All instruments were checked and "
    "found in order. Two boats passed by and no one came ashore. The lamp was put out at dawn. There is "
    "nothing else to report."
)
SUBJECTS = ("the pass key of the tower", "the number of the spare lamp", "the radio code of the harbour")
OPENING = "This is the logbook of a lighthouse. Most days are the same, but some entries matter."


class Fact(NamedTuple):
    """Something worth remembering, and the question about it."""

    question: str
    answer: str


class Logbook(NamedTuple):
    """The text and its facts, in the order they appear."""

    text: str
    facts: tuple[Fact, ...]


def logbook(days: int, seed: int = 0, depths: tuple[float, ...] = (0.05, 0.5, 0.95)) -> Logbook:
    """Write a logbook of days, some 52 tokens each, that are alike but for the facts."""
    source = random.Random(seed)
    entries = [ROUTINE] * days
    facts = []
    for subject, depth in zip(SUBJECTS, depths, strict=False):
        answer = str(source.randint(10000, 99999))
        name = subject[0].upper() + subject[1:]
        facts.append(Fact(f"What is {subject}? {name} is", answer))
        entries[int(depth * (days - 1))] += f"\n{name} is {answer}. Remember it. {answer} is {subject}."
    return Logbook("\n".join((OPENING, *entries)), tuple(facts))
