"""Are facts that are planted in a novel worth more to a pot than the novel? Their novelty, and what is kept.

    python benchmarks/surprise.py --dtype bfloat16 --data DIR --out surprise.json

DATA holds `facts` and `books`. Each text is read once, as the default reads it with no question known. Of the
tokens of planted paragraphs and of all others it says: how many there are, their mean novelty in nats, and
the share of their slots that is kept (the mean over layers and heads).
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from infinipot.engine import Engine, open_engine
from infinipot.eval.tasks.jsonl import find_file, read_rows
from infinipot.eval.tasks.task import REPORT, TUNE, Example, make
from infinipot.reading.recording import Recording
from infinipot.recipes.recipe import Recipe
from infinipot.text.detokenize import pieces


def texts(args: argparse.Namespace, engine: Engine) -> Iterator[tuple[str, str]]:
    """Yield the half and the text of every text that facts are planted in."""
    for part in (TUNE, REPORT):
        given = {"data": args.data / "facts", "hay": str(args.data / "books"), "lengths": args.length}
        task = make("facts", {**given, "texts": args.texts, "part": part}, 0)
        found = task.examples(lambda text: len(engine.tokenizer.encode(text)))
        yield from dict.fromkeys((part, one.text) for one in found if isinstance(one, Example))


def marked(told: list[str], opening: int, text: str, facts: list[str]) -> np.ndarray:
    """Say of every token whether it lies in a planted paragraph; the first ones are the prompt's."""
    ends = np.cumsum([len(piece) for piece in told])
    begin = ends[opening - 1] if opening else 0
    found = np.zeros(len(told), bool)
    for fact in facts:
        if (at := text.find(fact)) >= 0:
            found |= (ends > begin + at) & (ends <= begin + at + len(fact))
    return found


def measured(engine: Engine, text: str, facts: list[str], capacity: int) -> dict[str, Any]:
    """Read a text; return what is known of its facts and of the rest."""
    reader = engine.reader(Recipe.named(capacity=capacity, format=engine.format, units="slots"))
    recording = reader.session.recording = Recording()
    reader.read(text)
    recording.rest([one for one in reader.pot.evidence() if one is not None], reader.pot.tokens)
    opening = reader.frame.opening
    ids = [*opening, *engine.tokenizer.encode(text)][: reader.pot.tokens]
    record = recording.record(ids, pieces(engine.tokenizer, ids), {})
    inside = marked(list(record.pieces), len(opening), text, facts)
    novelty = torch.tensor(record.novelty).float()
    held = record.held().mean((0, 1))
    sides = {"facts": inside, "others": ~inside}
    return {
        "tokens": {name: int(side.sum()) for name, side in sides.items()},
        "nats": {name: float(novelty[torch.tensor(side)].mean()) for name, side in sides.items()},
        "kept": {name: float(held[side].mean()) for name, side in sides.items()},
    }


def main() -> None:
    """Measure every text of both halves."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="qwen2.5-coder-1.5b")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--capacity", type=int, default=4096)
    parser.add_argument("--length", default="16k")
    parser.add_argument("--texts", type=int, default=4, help="of each half")
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    engine = open_engine(args.model, args.device, args.dtype)
    rows = read_rows(find_file(args.data / "facts", ["squad.jsonl"], "JSON lines"))
    facts = [row.text("paragraph") for row in rows]
    found = []
    for part, text in texts(args, engine):
        found.append({"part": part, **measured(engine, text, facts, args.capacity)})
        print(json.dumps(found[-1]), flush=True)
    args.out.write_text(json.dumps({"model": args.model, "length": args.length, "texts": found}, indent=1))


if __name__ == "__main__":
    main()
