"""Which passages to read once the model has judged them: by words, the surest, all that are nearly as sure.

    python benchmarks/judging.py --sets locomo,facts --data DIR --dtype bfloat16 --out judging.jsonl

DATA is as for `recall.py`. Every passage of a text is judged for every question, and the pot answers from
each choice: on the half `tune`, to choose a rule. A line of OUT is a question, with its scores and the
seconds that judging took; the means are printed.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean
from typing import Any

from infinipot import Generation, Recipe
from infinipot.engine import Engine, open_engine
from infinipot.eval.tasks.task import Example, half, make
from infinipot.reading import judge, recalled
from infinipot.recall.search import coverage, ranked, taken
from recall import QA, Chosen

WAYS = ("words", "s1", "m1")  # by words; the surest alone; all that are nearly as sure


def task_of(name: str, args: argparse.Namespace) -> Any:
    """The task of a set; facts know their halves themselves."""
    facts = {"data": args.data / "facts", "hay": str(args.data / "books"), "part": args.part}
    facts |= {"lengths": args.lengths, "planted": 12}
    if name in ("facts", "paraphrase"):
        return make("facts", {**facts, "facts": "squad" if name == "facts" else name}, 0)
    if name == "locomo":
        return Chosen(make(name, {"data": args.data / name}, 0), 0, 12)
    return Chosen(make(name, {"data": args.data / name, "tasks": QA}, 0), args.capacity, None)


def rows(name: str, engine: Engine, args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Ask every question of a set in every way."""
    task, encode = task_of(name, args), engine.tokenizer.encode
    pot = engine.reader(Recipe.named(capacity=args.capacity, format=engine.format))
    read, text = pot.fork(), None
    for one in task.examples(lambda text: len(encode(text))):
        if not isinstance(one, Example) or (name in ("locomo", "longbench") and half(one.id) != args.part):
            continue
        if one.text is not text:
            pot.clear()
            pot.read(one.text)
            read, text = pot.fork(), one.text
        archive, question = pot.archive, one.query or one.question
        assert archive is not None
        found, queries = ranked(archive, [question]), [question]
        if coverage(archive, question) <= recalled.COVERED:
            queries.append(recalled.keywords(pot, question))
        started = time.perf_counter()
        near = judge.judged(pot, question, found, archive.last)
        took, scores = time.perf_counter() - started, {}
        budget = min(pot.config.recalled, args.capacity // 2 - 3 * len(encode(question)) - recalled.AROUND)
        for way, numbers in zip(WAYS, (ranked(archive, queries), near[:1], near), strict=True):
            passages = taken(archive, numbers, queries, budget, lambda text: len(encode(text)))
            pot.take_over(read)
            prompt = recalled.prompt(pot, question, passages, one.question)
            said = pot.tokenizer.decode(list(pot.generate(prompt, Generation(one.new_tokens), final=True)))
            scores[f"pot.{way}"] = round(task.score(said.split("\n")[0] if one.one_line else said, one), 4)
        pot.take_over(read)
        about = {"set": name, "example": one.id, "passages": archive.last}
        yield {**about, "judging_s": round(took, 2), "scores": scores}


def main() -> None:
    """Measure, and print the means."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--model", default="qwen2.5-coder-1.5b")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--sets", default="locomo,longbench,facts,paraphrase")
    parser.add_argument("--part", choices=("tune", "report"), default="tune")
    parser.add_argument("--capacity", type=int, default=4096)
    parser.add_argument("--lengths", default="16k,128k", help="of texts that facts are planted in")
    parser.add_argument("--most", type=int, help="questions of a set")
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    engine = open_engine(args.model, args.device, args.dtype)
    with args.out.open("w", encoding="utf-8") as file:
        for name in args.sets.split(","):
            done = []
            for row in rows(name, engine, args):
                file.write(json.dumps(row) + "\n")
                file.flush()
                done.append(row["scores"])
                if args.most and len(done) >= args.most:
                    break
            means = {way: round(100 * fmean(one[f"pot.{way}"] for one in done), 1) for way in WAYS}
            print(name, len(done), "questions", means, flush=True)


if __name__ == "__main__":
    main()
