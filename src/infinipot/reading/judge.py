"""Which passages answer a question, by the model's own judgement: each is read alone, and the model is asked.

One forward over a passage and the question gives two numbers: how little the question surprises after the
passage (its novelty, equation 4 of the paper), and whether Yes or No would follow. Passages need not share a
word with the question.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from infinipot.core.config import ReadingMode
from infinipot.core.scores import novelty
from infinipot.recall.archive import Archive
from infinipot.recall.search import fused

if TYPE_CHECKING:
    from infinipot.reading.reader import Reader

ASKED = "{passage}\n\nDoes the text above say the answer to this question:"
FIRST = 32  # passages judged for every question, the best by their words
SURE = 3.0  # Yes is so much likelier than No (difference of logits) that no more passages are looked at
TOGETHER = 8  # passages in one forward
ALONE = ReadingMode(distil="never")  # a pot for these tokens only


@dataclass(frozen=True)
class Judgement:
    """What a model says of one passage."""

    number: int
    likely: float  # mean log-probability of the question's tokens after the passage
    says: float  # logit of Yes minus that of No


def judged(reader: "Reader", question: str, ranked: Sequence[int], most: int) -> list[int]:
    """Return passages that a question needs, the best first: by their words, then as the model judges them.

    Where none of the first is sure to say the answer, further ones are judged, and words count no longer.
    """
    assert reader.archive is not None
    first = list(ranked[: min(FIRST, most)])
    found = judge(reader, question, first)
    if found and max(one.says for one in found) >= SURE:
        return [*fused([first, *rankings(found)]), *ranked[len(first) :]]
    seen = set(first)
    others = dict.fromkeys([*ranked, *range(1, reader.archive.last + 1)])
    found += judge(reader, question, [one for one in others if one not in seen][: most - len(first)])
    return fused(rankings(found)) if len(found) > len(first) else fused([first, *rankings(found)])


def rankings(found: Sequence[Judgement]) -> list[list[int]]:
    """Return the passages' numbers twice: by how likely the question is, and by what the model says."""
    likely = sorted(found, key=lambda one: one.likely, reverse=True)
    says = sorted(found, key=lambda one: one.says, reverse=True)
    return [[one.number for one in likely], [one.number for one in says]]


@torch.no_grad()
def judge(reader: "Reader", question: str, numbers: Sequence[int]) -> list[Judgement]:
    """Judge passages by their numbers, a few in one forward."""
    assert reader.archive is not None
    encode, archive, frame = reader.tokenizer.encode, reader.archive, reader.dialogue_frame
    asked, after = encode(f" {question}"), list(frame.ask_after)
    # Similar lengths together: the rest of a row is padding.
    texts = sorted(_texts(archive, numbers), key=lambda one: len(one[1]))
    found: list[Judgement] = []
    for at in range(0, len(texts), TOGETHER):
        some = texts[at : at + TOGETHER]
        before = [[*frame.opening, *encode(ASKED.format(passage=text))] for _, text in some]
        likely, says = _judge_rows(reader, before, asked, after)
        found += map(Judgement, [number for number, _ in some], likely, says)
    return found


def _texts(archive: Archive, numbers: Sequence[int]) -> list[tuple[int, str]]:
    return [(passage.id, passage.text.strip()) for passage in archive.passages(numbers)]


def _judge_rows(
    reader: "Reader", before: list[list[int]], asked: list[int], after: list[int]
) -> tuple[list[float], list[float]]:
    """Run rows of unequal length, padded behind: causal attention never sees what comes after a token."""
    model, tail = reader.model, [*asked, *after]
    ends = torch.tensor([len(row) for row in before], device=model.device)
    length = int(ends.max()) + len(tail)
    rows = [[*row, *tail, *[0] * (length - len(row) - len(tail))] for row in before]
    pot = model.new_pot(length, length - 1, ALONE)
    hidden = model.forward(torch.tensor(rows, device=model.device), pot)
    row = torch.arange(len(rows), device=model.device)[:, None]
    places = ends[:, None] + torch.arange(len(asked), device=model.device) - 1
    targets = torch.tensor([asked] * len(rows), device=model.device)
    likely = -novelty(hidden[row, places], targets, model.logits, model.vocabulary).mean(1)
    logits = model.logits(hidden[row[:, 0], ends + len(tail) - 1]).float()
    yes, no = (logits[:, _first(reader, word)].amax(1) for word in ("Yes", "No"))
    return likely.tolist(), (yes - no).tolist()


def _first(reader: "Reader", word: str) -> list[int]:
    """Return the first tokens of a word's usual spellings, after a space or without."""
    return sorted({reader.tokenizer.encode(spelt)[0] for spelt in (word, f" {word}")})
