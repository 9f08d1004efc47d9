"""Passkey accuracy of any recipes, one JSON line an example.

    python benchmarks/passkey.py --model smollm2 --capacity 2048 --recipe infinipot,truncate,swa --trials 10

Every recipe gets the same examples.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import torch
import transformers

from infinipot.engine import Engine, open_engine
from infinipot.eval.tasks.passkey import Passkey, passkey, score
from infinipot.reading.sampling import Generation
from infinipot.recipes.preset import parse_knob
from infinipot.recipes.presets import find
from infinipot.recipes.recipe import Recipe


def run(recipe: Recipe, engine: Engine, example: Passkey, new_tokens: int) -> dict:
    started = time.perf_counter()
    reader = engine.reader(recipe, example.question)
    reader.read(example.text)
    answer = "".join(reader.answer(example.question, Generation(new_tokens)))
    return {
        "recipe": recipe.preset.name,
        "correct": score(answer, example),
        "answer": answer.strip(),
        "key": example.key,
        "tokens_read": reader.tokens_read,
        "entries": reader.pot.fill,
        "cycles": reader.pot.cycles,
        "seconds": round(time.perf_counter() - started, 2),
    }


def recipe_from(name: str, args: argparse.Namespace, engine: Engine) -> Recipe:
    """The recipe with those of the options that apply to it."""
    method = find(name)
    knobs = {"novelty": args.novelty, "pool": args.pool}
    knobs |= dict(parse_knob(text, method) for text in args.set if text.split("=")[0] in method.knobs)
    drops = method.policy and method.bounded
    found = Recipe.named(
        name,
        capacity=args.capacity,
        keep=args.keep if drops else None,
        step=args.step if method.step else None,
        tail=args.tail if drops else None,
        format=args.format or engine.format,
        **{knob: value for knob, value in knobs.items() if knob in method.knobs},
    )
    return replace(found, catalyst=args.catalyst)


def rows(args: argparse.Namespace) -> Iterator[dict]:
    engine = open_engine(args.model, args.device, args.dtype)
    recipes = [recipe_from(name, args, engine) for name in args.recipe.split(",")]
    yield {
        "manifest": [recipe.describe() for recipe in recipes],
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
                for recipe in recipes:
                    row = run(recipe, engine, example, args.new_tokens)
                    yield {"length": length, "depth": depth, "trial": trial, **row}


def table(done: list[dict]) -> str:
    lines = ["recipe         length   depth  correct   seconds"]
    order = list(dict.fromkeys(row["recipe"] for row in done))
    for recipe, length, depth in sorted(
        {(r["recipe"], r["length"], r["depth"]) for r in done}, key=lambda cell: (order.index(cell[0]), *cell)
    ):
        part = [r for r in done if (r["recipe"], r["length"], r["depth"]) == (recipe, length, depth)]
        right, mean = sum(r["correct"] for r in part), sum(r["seconds"] for r in part) / len(part)
        lines.append(f"{recipe:<13} {length:>7} {depth:>7} {right:>4.0f}/{len(part):<4} {mean:>8.1f}")
    for recipe in order:
        part = [r["correct"] for r in done if r["recipe"] == recipe]
        lines.append(f"{recipe:<13} overall {sum(part):.0f}/{len(part)} = {100 * sum(part) / len(part):.1f}%")
    return "\n".join(lines)


def markdown(files: list[Path]) -> str:
    """A table of what was found at each length and depth, recipe by recipe, from kept results."""
    lines = [line for file in files for line in file.read_text().splitlines()]
    done = [row for row in map(json.loads, lines) if "correct" in row]
    done = [{**row, "recipe": row.get("recipe", row.get("method"))} for row in done]  # older files say method
    cells = sorted({(row["length"], row["depth"]) for row in done})
    order = list(dict.fromkeys(row["recipe"] for row in done))
    table = [
        "| recipe | " + " | ".join(f"{length} at {depth:g}" for length, depth in cells) + " | all |",
        "|---" * (len(cells) + 2) + "|",
    ]
    for recipe in order:
        mine = [row for row in done if row["recipe"] == recipe]
        parts = [[r["correct"] for r in mine if (r["length"], r["depth"]) == cell] for cell in cells]
        found = [f"{sum(part):.0f} of {len(part)}" for part in [*parts, [r["correct"] for r in mine]]]
        table.append(f"| `{recipe}` | " + " | ".join(found) + " |")
    return "\n".join(table)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--capacity", type=int, default=2048)
    parser.add_argument("--keep", type=int)
    parser.add_argument("--step", type=int, help="for recipes that drop token by token")
    parser.add_argument("--novelty", type=float)
    parser.add_argument("--pool", type=int)
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--tail", choices=("distil", "fill", "raw"))
    parser.add_argument("--catalyst", default="question")
    parser.add_argument("--format", choices=["chat", "plain"])
    parser.add_argument("--lengths", default="8192,16384,32768")
    parser.add_argument("--depths", default="0.1,0.5,0.9")
    parser.add_argument("--trials", type=int, default=10)
    parser.add_argument("--recipe", default="infinipot,truncate,swa")
    parser.add_argument("--new-tokens", type=int, default=12)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--out", type=Path, default=Path("passkey.jsonl"))
    parser.add_argument("--markdown", type=Path, nargs="+", help="only print a table of these results")
    args = parser.parse_args()
    if args.markdown:
        print(markdown(args.markdown))
        return
    done = []
    with args.out.open("w") as out:
        for row in rows(args):
            out.write(json.dumps(row) + "\n")
            out.flush()
            if "recipe" in row:
                done.append(row)
                print(
                    {k: row[k] for k in ("recipe", "length", "depth", "correct", "answer", "seconds")},
                    flush=True,
                )
    print(table(done))


if __name__ == "__main__":
    main()
