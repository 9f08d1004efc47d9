"""What it costs to keep a pot: seconds, bytes, and what int8 loses against the exact file.

    python benchmarks/pots.py --model smollm2 --capacity 4096 --tokens 5800 --out docs/results/pots.json

A passkey text is read once per depth. The pot is saved and loaded in both encodings, and what the model
expects next is compared with the pot that was never saved: over the question and some text after it, and
as the answer to the question.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from infinipot.engine import Engine, open_engine
from infinipot.eval.tasks.passkey import first_number, passkey
from infinipot.reading.reader import Reader
from infinipot.reading.sampling import Generation
from infinipot.recipes.recipe import Recipe
from infinipot.store import LocalStore
from infinipot.store.match import card_of
from logbook import logbook


def timed(act: Callable[[], Any]) -> tuple[Any, float]:
    started = time.perf_counter()
    found = act()
    return found, time.perf_counter() - started


@torch.no_grad()
def logits(reader: Reader, question: str, after: list[int]) -> torch.Tensor:
    """[n, V] after every token of the question and of the text that follows it."""
    twin = reader.fork()
    ids = torch.tensor([[*twin.turn(question), *after]], device=reader.model.device)[:, : twin.pot.room]
    return reader.model.logits(twin.model.forward(ids, twin.pot))[0].float()


def compared(ours: torch.Tensor, exact: torch.Tensor) -> dict[str, float]:
    logp, logq = exact.log_softmax(-1), ours.log_softmax(-1)
    return {
        "logits_largest_difference": float((ours - exact).abs().max()),
        "logits_mean_difference": float((ours - exact).abs().mean()),
        "mean_divergence_nats": float((logp.exp() * (logp - logq)).sum(-1).mean()),
        "same_next_token": float((ours.argmax(-1) == exact.argmax(-1)).float().mean()),
    }


def measure(engine: Engine, recipe: Recipe, tokens: int, depth: float, after: list[int], rounds: int) -> dict:
    example = passkey(lambda text: len(engine.tokenizer.encode(text)), tokens, depth, seed=int(100 * depth))
    reader = engine.reader(recipe)
    _, read_s = timed(lambda: reader.read(example.text))
    row: dict[str, Any] = {"depth": depth, "tokens_read": reader.tokens_read, "read_s": round(read_s, 2)}
    row |= {"fill": reader.pot.fill, "cycles": reader.pot.cycles}
    exact = logits(reader, example.question, after)
    row["correct_before"] = first_number(reader.ask(example.question, Generation(8)), example.answers[0])
    card = card_of(engine, recipe, reader, "passkey", "0" * 64, len(example.text))
    with tempfile.TemporaryDirectory() as folder:
        store = LocalStore(Path(folder))
        for encoding in ("exact", "int8"):
            told = replace(card, encoding=encoding)
            saves, loads = [], []
            other = engine.reader(recipe)
            for _ in range(rounds):
                kept, seconds = timed(lambda t=told: store.save("pot", reader.state(), t, replace=True))
                saves.append(seconds)
                _, seconds = timed(lambda o=other: o.restore(store.load("pot")[0]))
                loads.append(seconds)
            before = other.pot.tokens
            found = logits(other, example.question, after)
            pieces = other.answer(example.question, Generation(8))
            first = next(pieces)
            processed = other.pot.tokens - before
            row[encoding] = {
                "bytes": kept.bytes,
                "save_s": [round(s, 3) for s in saves],
                "load_s": [round(s, 3) for s in loads],
                "same_logits": bool(torch.equal(found, exact)),
                **compared(found, exact),
                "question_tokens": len(reader.turn(example.question)),
                "tokens_processed": processed,
                "correct": first_number((first + "".join(pieces)).strip(), example.answers[0]),
            }
    return row


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--capacity", type=int, default=4096)
    parser.add_argument("--tokens", type=int, default=5800)
    parser.add_argument("--depths", default="0.1,0.5,0.9")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    engine = open_engine(args.model, args.device, args.dtype)
    recipe = Recipe.named(capacity=args.capacity, format="plain")
    after = engine.tokenizer.encode(logbook(12).text)[:256]
    rows = []
    for depth in map(float, args.depths.split(",")):
        rows.append(measure(engine, recipe, args.tokens, depth, after, args.rounds))
        print(json.dumps(rows[-1]), flush=True)
    result = {
        "model": args.model,
        "device": str(engine.model.device),
        "dtype": engine.dtype,
        "capacity": args.capacity,
        "torch": torch.__version__,
        "load_s_median": {
            e: statistics.median(s for r in rows for s in r[e]["load_s"]) for e in ("exact", "int8")
        },
        "rows": rows,
    }
    if args.out:
        args.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
