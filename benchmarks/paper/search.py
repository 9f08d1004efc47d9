"""Table 8: rows that one recipe answers and another does not, found by search, with what each pot held.

Rows are searched with two recipes, called ours and theirs. Every row is counted, whoever was right.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from infinipot.inspect.run import Run
from paper import evidence

RIGHT = 0.5  # a score from here on is a right answer; a wrong one has none at all
HALF = 0.5  # of the heads: from here on a word is shown in bold

HOW = """Of each task, the row that only the first recipe answered and whose answer its pot held most more of.

The evidence is the place that says the answer with most of the question's words around it, chosen without
looking at the pots. Bold: at least half of all layers and heads hold the word. Struck through: none does. In
brackets: the answer.
"""


class Word(NamedTuple):
    """A word, whether it is the answer's, and the share of heads that held it."""

    text: str
    own: bool
    ours: float
    theirs: float


@dataclass(frozen=True)
class Side:
    """What one recipe said, and the share of its heads that held the answer's words."""

    recipe: str
    answer: str
    score: float
    share: float | None  # at the evidence; None where the text does not say the answer
    everywhere: float | None  # mean over all places that say it


@dataclass(frozen=True)
class Searched:
    """One row that was searched."""

    task: str
    id: str
    tokens: int
    cycles: int
    question: str
    answers: tuple[str, ...]
    ours: Side
    theirs: Side
    places: int  # where the text says the answer
    words: tuple[Word, ...]  # around the evidence

    @property
    def verdict(self) -> str:
        """Who was right."""
        ours, theirs = self.ours.score, self.theirs.score
        if ours >= RIGHT and theirs == 0:
            return "ours only"
        if theirs >= RIGHT and ours == 0:
            return "theirs only"
        if ours >= RIGHT and theirs >= RIGHT:
            return "both right"
        return "both wrong" if ours == theirs == 0 else "in between"

    @property
    def gain(self) -> float:
        """By how much more of our heads than of theirs held the answer's words at the evidence."""
        return (self.ours.share or 0.0) - (self.theirs.share or 0.0)

    def json(self) -> dict[str, Any]:
        """JSON-ready; `read` takes it back."""
        return {**asdict(self), "verdict": self.verdict, "gain": round(self.gain, 4)}


def read(found: Mapping[str, Any]) -> Searched:
    """Take a row back from what `Searched.json` made of it."""
    known = {name: value for name, value in found.items() if name not in ("verdict", "gain")}
    sides = {name: Side(**known[name]) for name in ("ours", "theirs")}
    known |= {"answers": tuple(known["answers"]), "words": tuple(Word(*word) for word in known["words"])}
    return Searched(**{**known, **sides})


def searched(
    task: str, id: str, question: str, answers: Sequence[str], runs: Sequence[Run], scores: Sequence[float]
) -> Searched:
    """Look at one row: our run and theirs, with the scores of their answers."""
    records = [run.record for run in runs]
    pieces = records[0].pieces
    said = evidence.places(pieces, answers)
    place = evidence.evidence(pieces, said, question)
    ours, theirs = (_side(run, score, place, said) for run, score in zip(runs, scores, strict=True))
    held = [] if place is None else evidence.shown(records, place)
    own = evidence.within(held, place) if place else []
    words = tuple(
        Word(word.text, mine, *(round(one, 4) for one in word.shares))
        for word, mine in zip(held, own, strict=True)
    )
    cycles = records[0].cycles
    return Searched(task, id, len(pieces), cycles, question, tuple(answers), ours, theirs, len(said), words)


def _side(run: Run, score: float, place: evidence.Place | None, said: Sequence[evidence.Place]) -> Side:
    if place is None:
        return Side(run.name, run.answer, round(score, 4), None, None)
    here, everywhere = (round(evidence.share(run.record, found), 4) for found in ([place], said))
    return Side(run.name, run.answer, round(score, 4), here, everywhere)


def ranked(rows: Sequence[Searched]) -> list[Searched]:
    """The rows that only we answered and whose text says the answer; first where we held most more of it."""
    found = [row for row in rows if row.verdict == "ours only" and row.places]
    return sorted(found, key=lambda row: (-row.gain, row.id))


def counts(rows: Sequence[Searched]) -> dict[str, int]:
    """How many rows of each verdict there are, and how the scores compare."""
    verdicts = ("ours only", "theirs only", "both right", "both wrong", "in between")
    return {
        "searched": len(rows),
        **{verdict: sum(row.verdict == verdict for row in rows) for verdict in verdicts},
        "ours higher": sum(row.ours.score > row.theirs.score for row in rows),
        "theirs higher": sum(row.theirs.score > row.ours.score for row in rows),
        "equal": sum(row.ours.score == row.theirs.score for row in rows),
        "text says the answer": sum(row.places > 0 for row in rows),
    }


def markdown(rows: Sequence[Searched], title: str) -> str:
    """The best row of each task, and the counts of all."""
    best: dict[str, Searched] = {}
    for row in ranked(rows):
        best.setdefault(row.task, row)
    tasks = [task for task in dict.fromkeys(row.task for row in rows) if task in best]
    shown = [line for task in tasks for line in (f"## {task}\n", *_shown(best[task]))]
    return "\n".join([f"# {title}\n", *([HOW, *shown] if shown else [_nothing(rows)]), _counted(rows)])


def _shown(row: Searched) -> list[str]:
    lines = [
        f"Row `{row.id}`: {row.tokens:,} tokens, {row.cycles} cycles; the text says the answer "
        f"in {row.places} {'place' if row.places == 1 else 'places'}.\n",
        f"**Question:** {_plain(row.question)}  ",
        f"**Right answer:** {_plain('; '.join(row.answers))}\n",
        "| recipe | answer | F1 | heads that hold the answer's words, at the evidence | at all places |",
        "|---|---|---|---|---|",
    ]
    for side in (row.ours, row.theirs):
        held = f"{100 * (side.share or 0):.0f}% | {100 * (side.everywhere or 0):.0f}%"
        lines.append(f"| {side.recipe} | {_plain(side.answer)} | {side.score:.2f} | {held} |")
    lines.append("")
    for number, side in enumerate((row.ours, row.theirs)):
        lines += [f"**{side.recipe}**\n", "> " + _shaded(row.words, number) + "\n"]
    return lines


def _shaded(words: Sequence[Word], number: int) -> str:
    said = []
    for one in words:
        word, held = _plain(one.text), (one.ours, one.theirs)[number]
        if word:
            word = f"**{word}**" if held >= HALF else f"~~{word}~~" if held == 0 else word
            said.append(f"\\[{word}\\]" if one.own else word)
    return " ".join(said)


def _nothing(rows: Sequence[Searched]) -> str:
    return f"No row of the {len(rows)} searched was answered by us alone, with the answer in its text.\n"


def _counted(rows: Sequence[Searched]) -> str:
    ours, theirs = (rows[0].ours.recipe, rows[0].theirs.recipe) if rows else ("ours", "theirs")
    lines = [
        f"## All rows searched\n\nOurs is {ours}, theirs {theirs}; right is F1 of {RIGHT} or more, wrong 0.\n"
    ]
    lines += ["| | rows |", "|---|---|", *(f"| {name} | {count} |" for name, count in counts(rows).items())]
    return "\n".join([*lines, ""])


def _plain(text: str) -> str:
    """On one line, without what Markdown would take for its own."""
    cleaned = "".join(f"\\{sign}" if sign in "\\*_~`[]<>|" else sign for sign in text)
    return " ".join(cleaned.split())
