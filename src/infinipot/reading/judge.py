"""Which passages answer a question, by the model's own judgement: each is read alone, and the model is asked.

Whether Yes or No would follow takes one forward over the passage and the question. Only what is judged nearly
as good as the best is read again: beside other passages a small model often answers from the wrong one.
Passages need not share a word with the question. Of a sentence that was found by meaning the model is asked
in several ways, alone and after examples of both answers: each judgement by itself is easily led astray.
"""

import tomllib
from collections.abc import Sequence
from importlib.resources import files
from itertools import takewhile
from math import inf
from typing import TYPE_CHECKING, NamedTuple

import torch

from infinipot.core.config import ReadingMode
from infinipot.core.pot import Pot
from infinipot.core.state import State
from infinipot.reading.plan import BLOCK
from infinipot.recall.passages import Passage

if TYPE_CHECKING:
    from infinipot.reading.reader import Reader


class Shown(NamedTuple):
    """How the model is asked after examples: what it is to do, a line's form, and the examples."""

    told: str
    line: str
    examples: list[tuple[str, str, str]]


_WORDS = tomllib.loads(files("infinipot.reading").joinpath("judging.toml").read_text("utf-8"))
ASKED, ALONE, STORY = (str(_WORDS["asked"][name]) for name in ("passage", "alone", "story"))
SHOWN, TELLS = (Shown(**_WORDS["shown"][name]) for name in ("answers", "tells"))
# How much each judgement of a sentence counts, fitted on questions that no table has (ADR 17). The last one
# counts against: it likes the same wrong sentences as the second, whatever is asked.
FIRST = ((ALONE, 1.0), (SHOWN, 3.0))
AGAIN = ((STORY, 0.5), (TELLS, -2.5))
BEST = 12  # of the sentences are judged again
TOGETHER = 24  # passages in one forward
NEAR, MOST = 1.0, 4  # how far below the surest a passage may be, and how many are read
UNDISTILLED = ReadingMode(distil="never")  # of a pot for these tokens only


def judged(
    reader: "Reader", question: str, passages: Sequence[Passage], sentences: bool = False
) -> tuple[list[Passage], bool]:
    """Return the few passages that say the answer, the surest first, and whether the surest does say it.

    The earlier of two that are as sure. With `sentences` each is judged in several ways.
    """
    texts = [passage.text.strip() for passage in passages]
    says = (judge_sentences if sentences else judge)(reader, question, texts)
    surest = sorted(range(len(says)), key=says.__getitem__, reverse=True)[:MOST]
    best = says[surest[0]] if surest else -inf
    return [passages[at] for at in surest if says[at] >= best - NEAR], best >= 0


def judge_sentences(reader: "Reader", question: str, texts: Sequence[str]) -> list[float]:
    """Return how sure several judgements together are of each text; -inf of those far from the surest."""
    says = weighed(reader, question, texts, FIRST)
    best = sorted(range(len(says)), key=says.__getitem__, reverse=True)[:BEST]
    more = weighed(reader, question, [texts[at] for at in best], AGAIN)
    found = {at: says[at] + again for at, again in zip(best, more, strict=True)}
    return [found.get(at, -inf) for at in range(len(says))]


def weighed(
    reader: "Reader", question: str, texts: Sequence[str], ways: Sequence[tuple[str | Shown, float]]
) -> list[float]:
    """Return the sum of several judgements of each text, as much of each as it counts."""
    said = [[weight * one for one in judge(reader, question, texts, way)] for way, weight in ways]
    return [*map(sum, zip(*said, strict=True))]


@torch.no_grad()
def judge(reader: "Reader", question: str, texts: Sequence[str], way: str | Shown = ASKED) -> list[float]:
    """Return how much likelier Yes is than No (difference of logits) for each text."""
    encode, frame = reader.tokenizer.encode, reader.dialogue_frame
    if isinstance(way, str):
        tail = [*encode(f" {question}"), *frame.ask_after]
        told = (encode(way.format(passage=text)) for text in texts)
        return _judge_all(reader, [[*frame.opening, *one, *tail] for one in told])
    lines = (f"{way.line.format(question=q, sentence=s)} {says}\n\n" for q, s, says in way.examples)
    before = way.told + "".join(lines)
    rows = (before + way.line.format(question=question, sentence=" ".join(text.split())) for text in texts)
    return _judge_all(reader, [*map(encode, rows)])


def _judge_all(reader: "Reader", rows: list[list[int]]) -> list[float]:
    """Judge rows of tokens, as many at once as memory allows; what they all begin with is read once."""
    model, places = reader.model, zip(*(row[:-1] for row in rows), strict=False)
    begin = [some[0] for some in takewhile(lambda some: len({*some}) == 1, places)]
    before = model.new_pot(len(begin) + 1, len(begin), UNDISTILLED)
    if begin:
        model.forward(torch.tensor([begin], device=model.device), before)
    # Similar lengths together: the rest of a row is padding.
    order, found = sorted(range(len(rows)), key=lambda at: len(rows[at])), dict[int, float]()
    most = BLOCK if model.device.type == "cpu" else 4 * BLOCK  # tokens, that memory stays bounded
    while order:
        some = order[:TOGETHER]
        while len(some) > 1 and len(some) * len(rows[some[-1]]) > most:
            some.pop()
        ends = [rows[at][len(begin) :] for at in some]
        found |= zip(some, _judge_rows(reader, ends, before), strict=True)
        del order[: len(some)]
    return [found[at] for at in range(len(rows))]


def _judge_rows(reader: "Reader", rows: list[list[int]], before: Pot) -> list[float]:
    """Run rows of unequal length after a beginning, padded behind: attention never sees what comes later."""
    model, length = reader.model, max(map(len, rows))
    ids = torch.tensor([[*row, *[0] * (length - len(row))] for row in rows], device=model.device)
    pot, state = model.new_pot(before.fill + length, before.fill + length - 1, UNDISTILLED), before.state()
    shapes = {name: (len(rows), *one.shape[1:]) for name, one in state.tensors.items() if one.dim() > 1}
    each = {name: one.expand(shapes.get(name, one.shape)) for name, one in state.tensors.items()}
    pot.load(State(each, state.numbers), model.device)
    hidden = model.forward(ids, pot)
    last = torch.tensor([len(row) - 1 for row in rows], device=model.device)
    logits = model.logits(hidden[torch.arange(len(rows), device=model.device), last]).float()
    yes, no = (logits[:, _first(reader, word)].amax(1) for word in ("Yes", "No"))
    return [float(one) for one in yes - no]


def _first(reader: "Reader", word: str) -> list[int]:
    """Return the first tokens of a word's usual spellings, after a space or without."""
    return sorted({reader.tokenizer.encode(spelt)[0] for spelt in (word, f" {word}")})
