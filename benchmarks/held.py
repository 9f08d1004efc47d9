"""What a pot holds of a pass key, and what the model makes of it, at growing distances behind the key.

    python benchmarks/held.py --model smollm2 --capacity 2048 --length 1m --depth 0.5 --seed 1048626

Every question is asked twice, with the text's end distilled and raw (`tail`, ADR 4): is a key that is not
told lost, or is it there and not read out? `held` is the share of its sentence that is there, the mean over
layers and heads.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from itertools import count as numbers

import torch

from infinipot.common.sizes import size
from infinipot.engine import Engine, open_engine
from infinipot.eval.tasks.passkey import STATEMENT, first_number, passkey
from infinipot.eval.tasks.task import Example
from infinipot.reading.held_words import columns
from infinipot.reading.reader import Reader
from infinipot.reading.sampling import Generation
from infinipot.recipes.recipe import Recipe

ANSWER = Generation(12)


def held(reader: Reader, first: int, tokens: int) -> float:
    """How much of the `tokens` from the `first` on is there."""
    found = [
        ((source >= first) & (source < first + tokens)).sum(-1).float() for source, _ in columns(reader.pot)
    ]
    return float(torch.cat([one.flatten() for one in found]).mean()) / tokens


def tell(what: str, reader: Reader, example: Example, first: int, tokens: int) -> None:
    """Print one line."""
    said, config = [], reader.config
    for tail in ("distil", "raw"):
        reader.session.config = replace(config, tail=tail)
        answer = reader.ask(example.question, ANSWER)
        said.append(f"{tail}: {first_number(answer, example.answers[0]):.0f} {answer[:28]!r}")
    reader.session.config = config
    share = held(reader, first, tokens)
    print(f"{what:>6}  {reader.pot.cycles} cycles, held {share:.2f}, {', '.join(said)}", flush=True)


def run(engine: Engine, args: argparse.Namespace) -> None:
    """Read one text, and ask at 4K, 16K, 64K, ... tokens behind the key and at the end."""

    def count(text: str) -> int:
        return len(engine.tokenizer.encode(text))

    example = passkey(count, args.length, args.depth, args.seed)
    recipe = Recipe.named(
        capacity=args.capacity, keep=args.keep, pool=args.pool, tail="distil", catalyst="question"
    )
    reader = engine.reader(replace(recipe, format=engine.format), example.question)
    statement = STATEMENT.format(key=example.answers[0])
    first = count(example.text[: example.text.index(statement)])
    tokens = count(statement)
    print(f"key {example.answers[0]} at {first} of {count(example.text)} tokens", flush=True)
    marks = (4096 * 4**power for power in numbers())
    mark = next(marks)
    for progress in reader.reading(example.text):
        while progress.tokens_read > first + mark:
            tell(f"+{mark // 1024}K", reader, example, first, tokens)
            mark = next(marks)
    tell("end", reader, example, first, tokens)


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--capacity", type=size, default=2048)
    parser.add_argument("--keep", type=int)
    parser.add_argument("--pool", type=int)
    parser.add_argument("--length", type=size, default=size("1m"))
    parser.add_argument("--depth", type=float, default=0.5)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args(words)
    run(open_engine(args.model, args.device, args.dtype), args)


if __name__ == "__main__":
    main()
