"""What packed weights cost in exactness: the same text with a GGUF file's weights in full and in blocks.

    python benchmarks/bits_quality.py --model smollm2 --file book.txt --tokens 8192 --out bits.json

Reading: kept slots in common after all cycles. Answering: the next token and the Kullback-Leibler divergence
of what follows, token by token as in an answer, on the same past, where inputs are rounded to 8 bits.
"""

from __future__ import annotations

import argparse
import json
import statistics
from pathlib import Path

import torch

from infinipot.engine import Engine, open_engine
from infinipot.recipes.recipe import Recipe
from infinipot.text.files import read_text
from mixed import kept


@torch.no_grad()
def answering(engine: Engine, ids: list[int], past: int, count: int) -> torch.Tensor:
    """Log-probabilities [count, V] after each of `count` tokens, written one by one behind a past."""
    reader = engine.reader(Recipe.named(capacity=4 * (past + count), format=engine.format))
    reader.session.write(ids[:past], scored=False)
    found = []
    for token in ids[past : past + count]:
        hidden = reader.session.write([token], scored=False)
        found.append(engine.model.logits(hidden)[0, 0].float().log_softmax(-1).clone())
    return torch.stack(found)


def compared(exact: list[torch.Tensor], rounded: list[torch.Tensor]) -> dict[str, float]:
    agree, divergence = [], []
    for one, other in zip(exact, rounded, strict=True):
        agree += (one.argmax(-1) == other.argmax(-1)).float().tolist()
        divergence += (one.exp() * (one - other)).sum(-1).tolist()
    return {
        "answer_tokens": len(agree),
        "same_likeliest_token": statistics.mean(agree),
        "divergence_mean_nats": statistics.mean(divergence),
        "divergence_most_nats": max(divergence),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--file", required=True)
    parser.add_argument("--tokens", type=int, default=8192, help="of text that is read")
    parser.add_argument("--capacity", type=int, default=2048)
    parser.add_argument("--past", type=int, default=512, help="tokens before an answer")
    parser.add_argument("--answer", type=int, default=256, help="tokens of an answer")
    parser.add_argument("--answers", type=int, default=4, help="from other places of the text")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    ids: list[int] = []
    slots, logits, held = {}, {}, {}
    for weights in ("full", "auto"):
        engine = open_engine(args.model, "cpu", "float32", weights=weights)
        if not ids:
            for part in engine.tokenizer.encode_stream(read_text(args.file)):
                ids += part
                if len(ids) >= args.tokens:
                    break
            ids = ids[: args.tokens]
        held[weights] = engine.weights
        starts = range(0, len(ids) - args.past - args.answer, (len(ids) // args.answers))
        logits[weights] = [answering(engine, ids[at:], args.past, args.answer) for at in starts]
        slots[weights] = kept(engine, ids, args.capacity) if args.tokens > args.capacity else []
        del engine
    result = {
        "model": Path(args.model).name,
        "text": Path(args.file).name,
        "tokens": len(ids),
        "capacity": args.capacity,
        "weights": held,
        "torch": torch.__version__,
        **compared(logits["full"], logits["auto"]),
    }
    if slots["full"]:
        pairs = zip(slots["full"], slots["auto"], strict=True)
        result["slots_in_common_after_all_cycles"] = statistics.mean(len(a & b) / len(a) for a, b in pairs)
    print(json.dumps(result, indent=1))
    if args.out:
        args.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
