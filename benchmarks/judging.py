"""Which sentences to read for a question in other words: in how many ways they are judged, and beside what.

    python benchmarks/judging.py --data DIR --out judging --texts paraphrase-tune-128k,statements-128k

DIR is as for `recall.py`; the extra `meaning` must be there. For each question of a text, sentences near in
meaning and passages by words are judged in two ways, the best of them in six as `infinipot ask` does, and the
question is answered from what is chosen by either, beside the pot and without it (`ways.py`), and by words.
OUT/TEXT.jsonl has a line a question: the judgements, which of what was judged is right, and the answers. What
is better is chosen on `paraphrase-tune-*` and on `statements-*`, forty statements of our own;
`paraphrase-report-*` is for tables. The same command goes on where it ended.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import ways
from infinipot import Recipe
from infinipot.engine import Engine, open_engine
from infinipot.errors import ConfigError
from infinipot.eval.tasks.task import Example, Task, make
from infinipot.reading import judge, recalled
from infinipot.recall.meaning import nearest
from infinipot.recall.search import coverage, ranked, taken

SIZES = (48,)  # sentences that are judged
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

    def look(one: Example) -> ways.Looked:
        reader, budget = asking.read, asking.read.config.recalled
        some, signals = judged(reader, one.query)
        chosen = {"words": reader.recall(one.query)}
        for size in SIZES:
            near = [at for at, place in enumerate(signals["place"]) if place < size]
            says = [signals["yes"][at] + signals["examples"][at] for at in near]
            again = judge.judge_again(reader, one.query, [some[at].text.strip() for at in near], says)
            for how, sums in (("two", says), ("six", again)):
                best = [some[near[at]] for at in best_of(sums)]
                chosen[f"{how}{size}"] = taken(best, [one.query], budget, lambda text: len(encode(text)))
                signals[f"{how}{size}"] = sums
        row: dict[str, Any] = {"example": one.id, "coverage": coverage(reader.archive, one.query)}
        row["right"] = [at for at, passage in enumerate(some) if planted[one.query] in passage.text]
        row |= {key: [round(max(value, -99.0), 2) for value in values] for key, values in signals.items()}
        return row, {f"{way}.{end}": few for end in ("pot", "alone") for way, few in chosen.items()}

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


def judged(reader: Any, question: str) -> tuple[list[Any], Signals]:
    """Return what may be read for a question, passages by words and sentences, and what is known of each."""
    guess = recalled.said(reader, recalled.LIKELY, question, recalled.SEVERAL)
    asked, embedder = [question, guess, f"{question} {guess}"], reader.model.meaning
    near = nearest(reader.archive, embedder, asked, max(SIZES))
    words = [*reader.archive.passages(ranked(reader.archive, [question])[: judge.MOST])]
    some = [*dict.fromkeys([*words, *near])]
    texts = [passage.text.strip() for passage in some]
    places = {passage: float(place) for place, passage in enumerate(near)}
    return some, {
        "place": [-1.0 if one in words else places[one] for one in some],
        "yes": judge.judge(reader, question, texts),
        "examples": judge.judge_by_examples(reader, question, texts),
    }


def measure(name: str, engine: Engine, args: argparse.Namespace) -> None:
    """Measure one text, from where an earlier run ended, as long as there is time."""
    if getattr(engine.model, "meaning", None) is None:
        raise ConfigError("the extra `meaning` is not installed")
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
