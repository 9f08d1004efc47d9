"""What the parts of a plan take, before they are run: `grids.py --estimate`.

Tokens are reckoned by letters, and seconds by the tokens that ten workers read on an H200 with nothing else
on it, answers included. Nothing is loaded: a line for each grid and recipe, in the order of the plan, with
the rows that are there already taken off and what cells have in common counted once.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any, cast

from alike import Sharing, taken
from infinipot.engine import Engine
from infinipot.eval.folder import key, read_rows
from infinipot.eval.runner import Job
from infinipot.eval.tasks.task import ALL, Example, half
from plans import Part, chosen

LETTERS = 4.2  # of a token
RATE = 200_000  # tokens a second, one of an answer counted as:
ANSWERED, ALONE = 25, 300  # where sixteen are answered at once, and one by one
SLOWER = {"streaming-llm": 1.8, "swa": 1.8, "h2o": 4.0, "h2o-half": 4.0, "ccd": 1.3, "tova": 1.3}
TOKENWISE = 40.0  # a step of one token


def told(args: argparse.Namespace) -> None:
    """Print the table of one model."""
    total, before = 0.0, ""
    for part, rows, tokens in estimated(args):
        seconds = tokens / RATE
        total += seconds
        if part.place != before:
            print(f"{args.model}, {part.place}")
        before = part.place
        print(f"  {part.name[:70]:70} {rows:4} rows {tokens / 1e6:6.2f}M {seconds:5.0f} s {total:6.0f} s")


def estimated(args: argparse.Namespace) -> Iterator[tuple[Part, int, float]]:
    """Yield every part with the rows it has to make and what they take, in tokens."""
    here = Sharing(lambda: cast(Engine, None))
    encode = SimpleNamespace(encode=lambda text: range(count(text)))
    here.__dict__["runner"] = SimpleNamespace(engine=SimpleNamespace(tokenizer=encode))
    done: dict[str, set[Any]] = {}
    known: dict[str, list[Example]] = {}
    for part in chosen(args):
        wanted = part.evaluation(args)
        if part.place not in known:
            every = (one for one in wanted.task.examples(count) if isinstance(one, Example))
            known[part.place] = [one for one in every if wanted.part in (ALL, half(one.id))]
            done[part.place] = set(map(key, read_rows(args.out / part.place)))
        mine = taken(known[part.place], min(part.rows or 9**9, args.rows or 9**9), part.longest, part.share)
        jobs = [Job(cell, one) for cell in part.cells.cells() for one in known[part.place] if one.id in mine]
        yield part, *_left(part, jobs, here, done[part.place])


def _left(part: Part, jobs: Sequence[Job], here: Sharing, done: set[Any]) -> tuple[int, float]:
    """Count the rows that nobody has made; from now on they are made. A text of several is read once."""
    rows, tokens, text = 0, 0.0, ""
    for job in jobs:
        same, again = here.key(job), job.example.shared and job.example.text == text
        if job.key not in done and same not in done:
            rows, tokens = rows + 1, tokens + answering(part, job.example)
            tokens += 0 if again else reading(part, job.example)
            text = job.example.text
        done |= {job.key, same}
    return rows, tokens


def reading(part: Part, example: Example) -> float:
    """Reckon what reading a text takes, in tokens of InfiniPot's."""
    tokens = min(count(example.text), part.capacity) if part.recipe == "truncate" else count(example.text)
    return tokens * (TOKENWISE if part.step == 1 else SLOWER.get(part.recipe, 1.0))


def answering(part: Part, example: Example) -> float:
    """Reckon what an answer takes, in tokens that are read."""
    return example.new_tokens * (ANSWERED if part.batch(16) > 1 else ALONE)


def count(text: str) -> int:
    """Reckon how many tokens a text has."""
    return int(len(text) / LETTERS)
