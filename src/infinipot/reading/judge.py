"""Which passages answer a question, by the model's own judgement: each is read alone, and the model is asked.

Whether Yes or No would follow takes one forward over the passage and the question. Only what is judged nearly
as good as the best is read again: beside other passages a small model often answers from the wrong one.
Passages need not share a word with the question.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from infinipot.core.config import ReadingMode
from infinipot.reading.plan import BLOCK
from infinipot.recall.passages import Passage

if TYPE_CHECKING:
    from infinipot.reading.reader import Reader

ASKED = "{passage}\n\nDoes the text above say the answer to this question:"
TOGETHER = 24  # passages in one forward
NEAR, MOST = 1.0, 4  # how far below the best (difference of logits) a passage may be; and how many are read
ALONE = ReadingMode(distil="never")  # a pot for these tokens only


def judged(reader: "Reader", question: str, passages: Sequence[Passage]) -> list[Passage]:
    """Return the few passages that say the answer, the surest first; the earlier of two that are as sure."""
    says = judge(reader, question, [passage.text.strip() for passage in passages])
    surest = sorted(range(len(says)), key=says.__getitem__, reverse=True)[:MOST]
    return [passages[at] for at in surest if says[at] >= says[surest[0]] - NEAR]


@torch.no_grad()
def judge(reader: "Reader", question: str, texts: Sequence[str]) -> list[float]:
    """Return how much likelier Yes is than No (difference of logits) for each text."""
    encode, frame = reader.tokenizer.encode, reader.dialogue_frame
    tail = [*encode(f" {question}"), *frame.ask_after]
    rows = [[*frame.opening, *encode(ASKED.format(passage=text)), *tail] for text in texts]
    # Similar lengths together: the rest of a row is padding.
    order, found = sorted(range(len(rows)), key=lambda at: len(rows[at])), dict[int, float]()
    most = BLOCK if reader.model.device.type == "cpu" else 4 * BLOCK  # tokens, that memory stays bounded
    while order:
        some = order[:TOGETHER]
        while len(some) > 1 and len(some) * len(rows[some[-1]]) > most:
            some.pop()
        found |= zip(some, _judge_rows(reader, [rows[at] for at in some]), strict=True)
        del order[: len(some)]
    return [found[at] for at in range(len(texts))]


def _judge_rows(reader: "Reader", rows: list[list[int]]) -> list[float]:
    """Run rows of unequal length, padded behind: causal attention never sees what comes after a token."""
    model, length = reader.model, max(map(len, rows))
    ids = torch.tensor([[*row, *[0] * (length - len(row))] for row in rows], device=model.device)
    hidden = model.forward(ids, model.new_pot(length, length - 1, ALONE))
    last = torch.tensor([len(row) - 1 for row in rows], device=model.device)
    logits = model.logits(hidden[torch.arange(len(rows), device=model.device), last]).float()
    yes, no = (logits[:, _first(reader, word)].amax(1) for word in ("Yes", "No"))
    return [float(one) for one in yes - no]


def _first(reader: "Reader", word: str) -> list[int]:
    """Return the first tokens of a word's usual spellings, after a space or without."""
    return sorted({reader.tokenizer.encode(spelt)[0] for spelt in (word, f" {word}")})
