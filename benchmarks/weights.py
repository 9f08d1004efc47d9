"""How much each judgement of a sentence counts: fitted on questions to choose on, tried on those left out.

    python benchmarks/weights.py

Rows are those of an earlier form of `judging.py`, docs/results/recall/judging-weights.jsonl.xz: every
sentence that was found for a question, judged in six ways, and which of them is right. The weights make the
right one the likeliest of all (a softmax over a question's sentences). Statements are left out in turns, at
all lengths of text together. What `reading/judge.py` has is rounded from what comes out, without ways that
hardly count.
"""

from __future__ import annotations

import json
import lzma
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from infinipot.reading import judge

ROWS = Path(__file__).parents[1] / "docs" / "results" / "recall" / "judging-weights.jsonl.xz"
WAYS = (
    "judge-0",
    "judge-1",
    "judge-2",
    "shown-0",
    "shown-1",
    "shown-2",
)  # ASKED, ALONE, STORY, SHOWN, -, TELLS
TAKEN, ROUNDED = (1, 3, 2, 5), [weight for _, weight in (*judge.FIRST, *judge.AGAIN)]
SIZE, FOLDS, DECAY = 48, 13, 0.01
Row = dict[str, Any]
Lists = list[tuple[Tensor, Tensor]]  # a question's sentences [n, ways], and which are right [n]


@cache
def rows(part: str) -> list[Row]:
    """The questions to choose on (`tune`), or those to report."""
    with lzma.open(ROWS, "rt") as file:
        found = [json.loads(line) for line in file]
    return [row for row in found if ("report" in row["text"]) == (part == "report")]


def judged(row: Row, found: str) -> tuple[Tensor, Tensor]:
    """The judgements of what was found for a question, and which are right."""
    own = [at for at, place in enumerate(row[f"{found}-place"]) if place < SIZE]
    values = [[row[way][at] for way in WAYS] for at in own]
    right = torch.tensor([at in row["right"] for at in own])
    return torch.tensor(values, dtype=torch.float64), right


def fitted(lists: Lists, ways: tuple[int, ...]) -> Tensor:
    """Weights that make the right sentences likeliest, of some ways."""
    able = [(values[:, list(ways)], right) for values, right in lists if right.any()]
    spread = torch.cat([values for values, _ in able]).std(0)
    weights = torch.zeros(len(ways), dtype=torch.float64, requires_grad=True)
    search = torch.optim.LBFGS([weights], max_iter=80)

    def loss() -> Tensor:
        search.zero_grad()
        each = [
            -torch.log_softmax(values / spread @ weights, 0)[right].logsumexp(0) for values, right in able
        ]
        found = torch.stack(each).mean() + DECAY * weights.square().sum()
        found.backward()  # type: ignore[no-untyped-call]  # torch has no types here
        return found

    search.step(loss)  # type: ignore[no-untyped-call]  # nor here
    return weights.detach() / spread


def surest(lists: Lists, ways: tuple[int, ...], weights: Tensor) -> int:
    """For how many questions the right sentence is the surest."""
    return sum(bool(right[(values[:, list(ways)] @ weights).argmax()]) for values, right in lists)


def left_out(found: str, ways: tuple[int, ...]) -> int:
    """The same of questions to choose on, by weights that were fitted without them."""
    lists = [judged(row, found) for row in rows("tune")]
    names = [f"{row['text'].split('-')[0]} {row['example'].split('-', 1)[1]}" for row in rows("tune")]
    every, right = sorted(set(names)), 0
    for fold in range(FOLDS):
        out = set(every[fold::FOLDS])
        kept = [one for one, name in zip(lists, names, strict=True) if name not in out]
        tried = [one for one, name in zip(lists, names, strict=True) if name in out]
        right += surest(tried, ways, fitted(kept, ways))
    return right


def main() -> None:
    """Print what comes out."""
    even, taken = torch.ones(len(WAYS), dtype=torch.float64), torch.tensor(ROUNDED, dtype=torch.float64)
    every = tuple(range(len(WAYS)))
    for found in ("one", "two", "beside"):
        tune, report = ([judged(row, found) for row in rows(part)] for part in ("tune", "report"))
        there = [sum(bool(right.any()) for _, right in lists) for lists in (tune, report)]
        print(f"{found}: found {there[0]} of {len(tune)}, to report {there[1]} of {len(report)}")
        print(f"  all alike {surest(tune, every, even)}, to report {surest(report, every, even)}")
        for ways in (every, TAKEN):
            named = ", ".join(
                f"{WAYS[way]} {one:.2f}" for way, one in zip(ways, fitted(tune, ways), strict=True)
            )
            print(f"  fitted: {named}; left out {left_out(found, ways)}")
        print(f"  taken {surest(tune, TAKEN, taken)}, to report {surest(report, TAKEN, taken)}")


if __name__ == "__main__":
    main()
