"""Which sentences to read for a question in other words: how they are found, and how judged.

    python benchmarks/judging.py --data DIR --out judging --texts paraphrase-tune-128k,statements-128k

DIR is as for `recall.py`; the model of sentences must have been pulled. For each question of a text, passages
by words and the sentences nearest in meaning are judged in all ways that `reading/judge.py` has, with
`--beside FOLDER` also those nearest by another model of sentences, and the question is answered from what is
chosen (`found`, `beside`), and by words. OUT/TEXT.jsonl has a line a question: places, nearness and
judgements, which of what was judged is right, and the answers; so other weights of judgements can be tried
on rows. What is better is chosen on `paraphrase-tune-*` and on `statements-*`, forty statements of our own;
`paraphrase-report-*` is for tables. With `--as-asked` it is asked in one way alone, as `infinipot ask` does.
The same command goes on where it ended.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator
from functools import cache
from itertools import islice
from math import inf
from pathlib import Path
from typing import Any

import ways
from infinipot import Recipe
from infinipot.engine import Engine, open_engine
from infinipot.errors import ConfigError
from infinipot.eval.tasks.task import Example, Task, make
from infinipot.hf.meaning import SentenceModel
from infinipot.reading import judge, recalled
from infinipot.recall.archive import Archive
from infinipot.recall.meaning import nearest
from infinipot.recall.search import coverage, ranked, taken

SIZE = 48  # sentences that are judged
Signals = dict[str, list[float]]


def questions(name: str, data: Path, count: Callable[[str], int]) -> tuple[Task, list[Example]]:
    """The questions of a text, by its name: paraphrase-HALF-LENGTH, or statements-LENGTH."""
    kind, *parts, length = name.split("-")
    own = kind == "statements"
    given = {"data": Path(__file__).parent if own else data / "facts", "hay": str(data / "books")}
    given |= {"facts": kind, "part": "all" if own else parts[0], "lengths": length}
    task = make("facts", {**given, "planted": 40}, 3 if own else 0)
    return task, [one for one in task.examples(count) if isinstance(one, Example)]


def rows(name: str, engine: Engine, args: argparse.Namespace, done: set[str]) -> Iterator[dict[str, Any]]:
    """Ask the questions of a text in every way."""
    encode, planted = engine.tokenizer.encode, statements(name, args.data)
    task, asked = questions(name, args.data, lambda text: len(encode(text)))
    asking = ways.Asking(task, engine, args.capacity)
    beside = SentenceModel(args.beside, engine.model.device) if args.beside else None

    def look(one: Example) -> ways.Looked:
        reader, budget = asking.read, asking.read.config.recalled
        some, signals, guess = judged(reader, one.query, beside)
        chosen = {"words": reader.recall(one.query)}
        for found in ("found", "beside") if beside else ("found",):
            best = [some[at] for at in best_of(sums(signals, found))]
            chosen[found] = taken(best, [one.query], budget, lambda text: len(encode(text)))
        row: dict[str, Any] = {"example": one.id, "coverage": coverage(reader.archive, one.query)}
        row["right"] = [at for at, passage in enumerate(some) if planted[one.query] in passage.text]
        row |= {key: [round(value, 3) for value in values] for key, values in signals.items()}
        return {**row, "guess": guess}, {f"{way}.pot": few for way, few in chosen.items()}

    def as_asked(one: Example) -> ways.Looked:
        return asking.as_asked(one, Recipe.named().config.meaning)

    left = iter([one for one in asked[: args.most] if one.id not in done])
    while few := list(islice(left, ways.TOGETHER)):
        yield from asking.answered(few, as_asked if args.as_asked else look)


def best_of(says: list[float]) -> list[int]:
    """The places of what is read, as `judge.judged` chooses."""
    best = sorted(range(len(says)), key=says.__getitem__, reverse=True)[: judge.MOST]
    return [at for at in best if says[at] >= says[best[0]] - judge.NEAR]


def statements(name: str, data: Path) -> dict[str, str]:
    """The statement that answers each question."""
    own = name.startswith("statements")
    file = Path(__file__).parent / "statements.jsonl" if own else data / "facts" / "paraphrase.jsonl"
    read = [json.loads(line) for line in file.read_text("utf-8").splitlines()]
    return {one["question"]: one["statement"] for one in read}


def sums(signals: Signals, found: str) -> list[float]:
    """What `judge.judge_sentences` says of whatever was found so; -inf for the rest."""

    def said(at: int, ways: Any, after: int = 0) -> float:
        return sum(weight * signals[f"way-{after + number}"][at] for number, (_, weight) in enumerate(ways))

    own = [at for at, place in enumerate(signals[f"{found}-place"]) if place < SIZE]
    best = sorted(own, key=lambda at: said(at, judge.FIRST), reverse=True)[: judge.BEST]
    both = {at: said(at, judge.FIRST) + said(at, judge.AGAIN, len(judge.FIRST)) for at in best}
    return [both.get(at, -inf) for at in range(len(signals["way-0"]))]


def judged(reader: Any, question: str, beside: SentenceModel | None) -> tuple[list[Any], Signals, str]:
    """Return what may be read for a question, what is known of each, and what the model guessed."""
    guess = recalled.said(reader, recalled.LIKELY, question, recalled.SEVERAL)
    queries, embedder = [question, guess, f"{question} {guess}"], reader.model.meaning
    words = [*reader.archive.passages(ranked(reader.archive, [question])[: judge.MOST])]
    near = {"found": nearest(reader.archive, embedder, queries, SIZE)}
    if beside:
        near["beside"] = nearest(_other(reader.archive), beside, queries, SIZE)
    known = {(one.start, one.end): one for one in words}
    for name, few in near.items():
        near[name] = [known.setdefault((one.start, one.end), one) for one in few]
    some = [*dict.fromkeys([*words, *(one for few in near.values() for one in few)])]
    texts, signals = [passage.text.strip() for passage in some], Signals()
    for name, few in near.items():
        places = {passage: float(place) for place, passage in enumerate(few)}
        signals[f"{name}-place"] = [-1.0 if one in words else places.get(one, 99.0) for one in some]
    vectors = embedder.vectors([*queries, *texts]).astype("float32")
    signals["near"] = (vectors[len(queries) :] @ vectors[: len(queries)].mean(0)).tolist()
    for number, (way, _) in enumerate((*judge.FIRST, *judge.AGAIN)):
        signals[f"way-{number}"] = judge.weighed(reader, question, texts, [(way, 1.0)])
    return some, signals, guess


@cache
def _other(archive: Archive) -> Archive:
    """Return an archive of the same text: vectors of one model would be taken for the other's."""
    made = Archive()
    made.add("".join(archive.texts()))
    return made


def measure(name: str, engine: Engine, args: argparse.Namespace) -> None:
    """Measure one text, from where an earlier run ended, as long as there is time."""
    if getattr(engine.model, "meaning", None) is None:
        raise ConfigError("the model of sentences is missing: infinipot models pull all-mpnet-base-v2")
    ways.measure(name, engine, args, rows)


def main() -> None:
    """Measure, and print the share of right answers."""
    told = ways.parser(__doc__)
    told.add_argument("--texts", default="paraphrase-tune-16k,paraphrase-tune-128k,statements-128k")
    args = told.parse_args()
    args.ends = time.monotonic() + 60 * args.minutes
    engine = open_engine(args.model, args.device, args.dtype)
    for name in args.texts.split(","):
        measure(name, engine, args)
    print(ways.table(args.out))


if __name__ == "__main__":
    main()
