"""Passkey accuracy of InfiniPot beside truncation and most-recent-only, one JSON line an example.

    python benchmarks/passkey.py --model smollm2 --capacity 2048 --lengths 8192,16384,32768 --trials 10

Every method gets the same examples. `truncate` keeps the first and last half of
what fits; `recent` fills the same pot and keeps only the latest entries.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import torch
import transformers

from infinipot.api import Engine, open_engine
from infinipot.config import PotConfig
from infinipot.policy import Need, ScoredPolicy
from infinipot.pot import Evidence
from infinipot.reader import Generation, Reader
from infinipot.recipes import Recipe
from infinipot.tasks.passkey import Passkey, passkey, score


@dataclass(frozen=True)
class Recent(ScoredPolicy):
    """Keeps the latest slots, whatever they say."""

    @property
    def needs(self) -> frozenset[Need]:
        return frozenset()

    def score(self, evidence: Evidence, budget: int) -> torch.Tensor:  # noqa: ARG002  any budget
        return evidence.source.double()


def reader_for(method: str, engine: Engine, recipe: Recipe, example: Passkey) -> Reader:
    if method == "recent":
        config = replace(recipe.config, keep=recipe.config.capacity - 256, settle=False)
        return Reader(engine.model, engine.tokenizer, Recent(), config, recipe.format)
    return engine.reader(recipe, example.question)


def run(method: str, engine: Engine, recipe: Recipe, example: Passkey, new_tokens: int) -> dict:
    started = time.perf_counter()
    reader = reader_for(method, engine, recipe, example)
    ids = engine.tokenizer.encode(example.text)
    if method == "truncate":
        room = recipe.config.capacity - len(reader.catalyst) - new_tokens - len(reader.frame.opening) - 8
        ids = ids if len(ids) <= room else ids[: room // 2] + ids[-(room // 2) :]
    for _ in reader.reading_tokens([ids]):
        pass
    answer = "".join(reader.answer(example.question, Generation(new_tokens)))
    return {
        "method": method,
        "correct": score(answer, example),
        "answer": answer.strip(),
        "key": example.key,
        "tokens_read": reader.tokens_read,
        "cycles": reader.pot.cycles,
        "seconds": round(time.perf_counter() - started, 2),
    }


def rows(args: argparse.Namespace) -> Iterator[dict]:
    engine = open_engine(args.model, args.device, args.dtype)
    config = PotConfig(args.capacity, args.keep, args.novelty, pool=args.pool, settle=not args.no_settle)
    recipe = Recipe(config=config, catalyst=args.catalyst, format=args.format or engine.format)
    yield {
        "manifest": recipe.describe(),
        "model": args.model,
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "device": torch.cuda.get_device_name() if engine.model.device.type == "cuda" else platform.machine(),
        "seed": args.seed,
    }

    def count(text: str) -> int:
        return len(engine.tokenizer.encode(text))

    for length in map(int, args.lengths.split(",")):
        for depth in map(float, args.depths.split(",")):
            for trial in range(args.trials):
                example = passkey(count, length, depth, args.seed + 1000 * trial + int(100 * depth) + length)
                for method in args.methods.split(","):
                    row = run(method, engine, recipe, example, args.new_tokens)
                    yield {"length": length, "depth": depth, "trial": trial, **row}


def table(done: list[dict]) -> str:
    lines = ["method      length   depth  correct   seconds"]
    keys = sorted({(r["method"], r["length"], r["depth"]) for r in done})
    for method, length, depth in keys:
        part = [r for r in done if (r["method"], r["length"], r["depth"]) == (method, length, depth)]
        right, mean = sum(r["correct"] for r in part), sum(r["seconds"] for r in part) / len(part)
        lines.append(f"{method:<10} {length:>7} {depth:>7} {right:>4.0f}/{len(part):<4} {mean:>8.1f}")
    for method in sorted({r["method"] for r in done}):
        part = [r["correct"] for r in done if r["method"] == method]
        lines.append(f"{method:<10} overall {sum(part):.0f}/{len(part)} = {100 * sum(part) / len(part):.1f}%")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--capacity", type=int, default=2048)
    parser.add_argument("--keep", type=int)
    parser.add_argument("--novelty", type=float, default=0.5)
    parser.add_argument("--pool", type=int, default=1)
    parser.add_argument("--no-settle", action="store_true")
    parser.add_argument("--catalyst", default="question")
    parser.add_argument("--format", choices=["chat", "plain"])
    parser.add_argument("--lengths", default="8192,16384,32768")
    parser.add_argument("--depths", default="0.1,0.5,0.9")
    parser.add_argument("--trials", type=int, default=10)
    parser.add_argument("--methods", default="infinipot,truncate,recent")
    parser.add_argument("--new-tokens", type=int, default=12)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--out", type=Path, default=Path("passkey.jsonl"))
    args = parser.parse_args()
    done = []
    with args.out.open("w") as out:
        for row in rows(args):
            out.write(json.dumps(row) + "\n")
            out.flush()
            if "method" in row:
                done.append(row)
                print(
                    {k: row[k] for k in ("method", "length", "depth", "correct", "answer", "seconds")},
                    flush=True,
                )
    print(table(done))


if __name__ == "__main__":
    main()
