"""What products in bfloat16 cost in exactness on a CPU: the same text read in float32 and in `mixed`.

    python benchmarks/mixed.py --file book.txt --tokens 16384 --out mixed.json

Novelty of every token and the likeliest next token are compared on the same past (the first pot's
worth, before anything is dropped); kept slots after all cycles, where differences could add up.
"""

from __future__ import annotations

import argparse
import json
import statistics
from pathlib import Path

import torch

from infinipot.engine import Engine, open_engine
from infinipot.reading import room
from infinipot.recipes.recipe import Recipe
from infinipot.text.files import read_text


@torch.no_grad()
def first_pot(engine: Engine, ids: list[int], capacity: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Each token's novelty and the likeliest token after it, in one pass that drops nothing."""
    reader = engine.reader(Recipe.named(capacity=2 * capacity, format=engine.format))
    hidden = reader.model.forward(torch.tensor([ids[:capacity]]), reader.pot)[0]
    novel, likeliest = [], []
    for start in range(0, capacity - 1, 256):
        logits = reader.model.logits(hidden[start : start + 256])
        after = torch.tensor(ids[start + 1 : start + 1 + len(logits)])
        logits = logits[: len(after)]
        novel.append(logits.logsumexp(-1) - logits.gather(1, after[:, None])[:, 0])
        likeliest.append(logits.argmax(-1))
    return torch.cat(novel), torch.cat(likeliest)


def kept(engine: Engine, ids: list[int], capacity: int) -> list[set[int]]:
    reader = engine.reader(
        Recipe.named(capacity=capacity, tail="distil", format=engine.format, units="slots")
    )
    for _ in reader.reading_tokens([ids]):
        pass
    room.before_question(reader.session, 0, 0)
    return [
        set(head.tolist()) for layer in reader.pot.pot_layers for head in layer.source[0, :, : layer.fill]
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--file", required=True)
    parser.add_argument("--tokens", type=int, default=16384)
    parser.add_argument("--capacity", type=int, default=2048)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    engines = {dtype: open_engine(args.model, "cpu", dtype) for dtype in ("float32", "mixed")}
    ids: list[int] = []
    for part in engines["float32"].tokenizer.encode_stream(read_text(args.file)):
        ids += part
        if len(ids) >= args.tokens:
            break
    ids = ids[: args.tokens]
    exact, mixed = (first_pot(engine, ids, args.capacity) for engine in engines.values())
    ours = [kept(engine, ids, args.capacity) for engine in engines.values()]
    result = {
        "model": args.model,
        "tokens": len(ids),
        "capacity": args.capacity,
        "torch": torch.__version__,
        "novelty_mean": float(exact[0].mean()),
        "novelty_mean_difference": float((exact[0] - mixed[0]).abs().mean()),
        "novelty_correlation": float(torch.corrcoef(torch.stack((exact[0], mixed[0])))[0, 1]),
        "same_likeliest_token": float((exact[1] == mixed[1]).float().mean()),
        "slots_in_common_after_all_cycles": statistics.mean(
            len(a & b) / len(a) for a, b in zip(*ours, strict=True)
        ),
    }
    print(json.dumps(result, indent=1))
    if args.out:
        args.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
