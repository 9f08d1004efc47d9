"""Reading speed against plain transformers, same chunk shape, same run.

    python benchmarks/reading.py --model smollm2 --new 2048 --cached 2048

Plain transformers runs the chunk on a DynamicCache and computes one row of
logits (the least it can do). The pot reads the same chunk completely: forward
with the catalyst in the same pass, catalyst scores, novelty, selection, gather
and re-rotation. Rounds alternate, so that a noisy machine hurts both alike.
"""

from __future__ import annotations

import argparse
import copy
import json
import statistics
import time
from pathlib import Path

import torch
from transformers import DynamicCache

from infinipot.api import Engine, open_engine
from infinipot.recipes import Recipe


@torch.no_grad()
def plain_seconds(model: torch.nn.Module, ids: torch.Tensor, cached: int) -> float:
    cache = DynamicCache(config=model.config)
    model(ids[:, :cached], past_key_values=cache, logits_to_keep=1)
    started = time.perf_counter()
    model(ids[:, cached:], past_key_values=cache, logits_to_keep=1)
    return time.perf_counter() - started


def pot_seconds(engine: Engine, ids: torch.Tensor, cached: int, novelty: float) -> float:
    sizes = {"keep": cached, "novelty": novelty, "format": engine.format}
    extra = len(engine.reader(Recipe.named(capacity=2 * ids.shape[1], **sizes)).catalyst)
    reader = engine.reader(Recipe.named(capacity=ids.shape[1] + extra, **sizes))
    reader._write(ids[0, :cached].tolist())
    started = time.perf_counter()
    reader._write(ids[0, cached:].tolist(), distil=True)
    assert reader.pot.fill == cached
    return time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--new", type=int, default=2048)
    parser.add_argument("--cached", type=int, default=2048)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    engine = open_engine(args.model, "cpu", "float32")
    plain = copy.deepcopy(engine.model.model)
    plain.set_attn_implementation("sdpa")
    ids = torch.randint(100, engine.model.vocabulary - 100, (1, args.cached + args.new))
    times: dict[str, list[float]] = {"plain": [], "pot": [], "pot without novelty": []}
    for turn in range(args.rounds + 1):
        row = {
            "plain": plain_seconds(plain, ids, args.cached),
            "pot": pot_seconds(engine, ids, args.cached, 0.5),
            "pot without novelty": pot_seconds(engine, ids, args.cached, 0.0),
        }
        if turn:  # the first round warms up
            for name, seconds in row.items():
                times[name].append(seconds)
    middle = {name: statistics.median(values) for name, values in times.items()}
    ratios = [p / q for p, q in zip(times["plain"], times["pot"], strict=True)]
    result = {
        "shape": f"{args.new} new on {args.cached} cached",
        "threads": args.threads,
        "torch": torch.__version__,
        "seconds": {name: [round(v, 3) for v in values] for name, values in times.items()},
        "tokens_per_second": {name: round(args.new / value, 1) for name, value in middle.items()},
        "pot_over_plain": round(statistics.median(ratios), 3),
    }
    print(json.dumps(result, indent=1))
    if args.out:
        args.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
