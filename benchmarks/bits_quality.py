"""What fewer bits cost in exactness: a GGUF file's weights in full and in blocks, the inputs of a chunk's
products in float32 and in 8 bits, heads for novelty in full and in 8-bit floats, or pots of 16 and 8 bits.

    python benchmarks/bits_quality.py --model smollm2 --file book.txt --tokens 8192 --out bits.json
    python benchmarks/bits_quality.py --chunks --model smollm2 --file book.txt --past 1024 --out chunks.json
    python benchmarks/bits_quality.py --heads --model smollm2 --file book.txt --tokens 4096 --out heads.json
    python benchmarks/bits_quality.py --pots --model smollm2 --file book.txt --tokens 16384 --out pots.json

Reading: kept slots in common after all cycles. Answering: the next token and the Kullback-Leibler divergence
of what follows, token by token as in an answer, on the same past, where inputs are rounded to 8 bits.
"""

from __future__ import annotations

import argparse
import json
import lzma
import statistics
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch

from infinipot.engine import Engine, open_engine
from infinipot.hf.cuda import fp8
from infinipot.hf.speed import prepare
from infinipot.reading import room
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


@torch.no_grad()
def expected(engine: Engine, ids: list[int]) -> torch.Tensor:
    """Log-probabilities [n, V] after each token of a text that is read as one chunk."""
    reader = engine.reader(Recipe.named(capacity=4 * len(ids), format=engine.format))
    hidden = reader.model.forward(torch.tensor([ids]), reader.pot)[0]
    return torch.cat([engine.model.logits(part).float().log_softmax(-1) for part in hidden.split(256)])


def chunks(args: argparse.Namespace) -> dict[str, Any]:
    """A chunk's products in float32, and as `auto` computes them on this processor."""
    found, slots, computes, ids = {}, {}, {}, []
    for dtype in ("float32", "auto"):
        engine = open_engine(args.model, "cpu", dtype)
        ids = ids or _ids(engine, args)
        computes[dtype] = engine.dtype
        starts = range(0, len(ids) - args.past, len(ids) // args.answers)
        found[dtype] = [expected(engine, ids[at : at + args.past]) for at in starts]
        slots[dtype] = kept(engine, ids, args.capacity)
        del engine
    after = torch.cat([torch.tensor(ids[at + 1 : at + args.past]) for at in starts])
    exact, rounded = (torch.cat([one[:-1] for one in found[dtype]]) for dtype in found)
    novelty = [-one.gather(1, after[:, None])[:, 0] for one in (exact, rounded)]
    right = [(one.argmax(-1) == after).float() for one in (exact, rounded)]
    pairs = zip(*slots.values(), strict=True)
    return {
        "tokens": len(ids),
        "computes": computes,
        **compared(found["float32"], found["auto"]),
        "novelty_mean_nats": [float(one.mean()) for one in novelty],
        "novelty_differs_by": float((novelty[0] - novelty[1]).abs().mean()),
        "novelty_correlation": float(torch.corrcoef(torch.stack(novelty))[0, 1]),
        "next_token_right": [float(one.mean()) for one in right],
        "next_token_right_error_of_difference": float((right[0] - right[1]).std() / len(after) ** 0.5),
        "slots_in_common_after_all_cycles": statistics.mean(len(a & b) / len(a) for a, b in pairs),
    }


def going_on(engine: Engine, ids: list[int], args: argparse.Namespace, bits: int) -> dict[str, Any]:
    """What a pot of so many bits holds before a text's end, and what it expects of each token there."""
    told = {"capacity": args.capacity, "pot_bits": bits, "tail": "distil", "units": "slots"}
    recipe = Recipe.named(format=engine.format, **told)
    reader, end = engine.reader(recipe), len(ids) - args.answer * args.answers
    started = time.perf_counter()
    for _ in reader.reading_tokens([ids[:end]]):
        pass
    seconds = time.perf_counter() - started
    room.before_question(reader.session, 0, 0)  # as before an answer: distilled once more
    layers = reader.pot.pot_layers
    slots = [{*head.tolist()} for layer in layers for head in layer.source[0, :, : layer.fill]]
    found, left = [], reader.session.config.capacity - len(reader.session.catalyst) - reader.pot.fill
    for token in ids[end : end + min(args.answer * args.answers, left - 1)]:
        hidden = reader.session.write([token])
        found.append(engine.model.logits(hidden)[0, 0].float().log_softmax(-1).clone())
    told = {"pot_bytes": reader.pot.nbytes, "cycles": reader.pot.cycles, "reading_s": round(seconds, 1)}
    return {"slots": slots, "logits": torch.stack(found), "told": told}


def pots(engine: Engine, ids: list[int], args: argparse.Namespace) -> dict[str, Any]:
    """Pots of 16 and 8 bits side by side."""
    found = {bits: going_on(engine, ids, args, bits) for bits in (16, 8)}
    pairs = zip(found[16]["slots"], found[8]["slots"], strict=True)
    return {
        "weights": engine.weights,
        "pots": {bits: one["told"] for bits, one in found.items()},
        "slots_in_common_after_all_cycles": statistics.mean(len(a & b) / len(a) for a, b in pairs),
        **compared([found[16]["logits"]], [found[8]["logits"]]),
    }


class EightBits(torch.nn.Module):
    """Stands for a linear module as `--weights fp8` computes it on a card, by plain torch."""

    on = False

    def __init__(self, of: torch.nn.Linear) -> None:
        super().__init__()
        self.plain, self.bias = of.weight.detach(), of.bias
        self.rounded = fp8.rounded_weight([self.plain], torch.device("cpu")).unpacked()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x [..., in] times the weight; a token alone is not rounded."""
        if EightBits.on and x.shape[:-1].numel() > 1:
            data, scale = fp8.rounded_rows(x.flatten(0, -2))
            x = (data.float() * scale).view(x.shape)
        return torch.nn.functional.linear(x, self.rounded if EightBits.on else self.plain, self.bias)


def heads(args: argparse.Namespace) -> dict[str, Any]:
    """Kept slots in common: a model as it is, its layers in 8-bit floats, and its head for novelty too."""
    prepare.has_onednn = lambda: False  # type: ignore[assignment]  # weights stay where they are
    engine = open_engine(args.model, "cpu", "float32", weights="full")
    ids, head = _ids(engine, args), engine.model.head
    for layer in engine.model.decoder.layers:
        for part in (layer.self_attn, layer.mlp):
            for name, one in list(part.named_children()):
                if isinstance(one, torch.nn.Linear):
                    setattr(part, name, EightBits(one))
    fp8.add_rough(head)
    head.rough = head.rough.float()  # once, not for every product
    slots = {}
    for name in ("as it is", "head", "layers", "layers and head"):
        EightBits.on, fp8.ROUGH_HEAD = "layers" in name, "head" in name
        slots[name] = kept(engine, ids, args.capacity)
    pairs = [("as it is", "head"), ("as it is", "layers"), ("as it is", "layers and head")]
    common = {
        f"{a} | {b}": statistics.mean(len(x & y) / len(x) for x, y in zip(slots[a], slots[b], strict=True))
        for a, b in [*pairs, ("layers", "layers and head")]
    }
    return {"tokens": len(ids), "slots_in_common_after_all_cycles": common}


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
    parser.add_argument("--chunks", action="store_true", help="products of chunks in float32 and in 8 bits")
    parser.add_argument("--heads", action="store_true", help="novelty by a head in full and in 8-bit floats")
    parser.add_argument("--pots", action="store_true", help="pots of 16 and 8 bits, with weights as they are")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    if args.chunks or args.heads:
        told = {"model": Path(args.model).name, "text": Path(args.file).name, "capacity": args.capacity}
        _print({**told, "torch": torch.__version__, **(chunks if args.chunks else heads)(args)}, args.out)
        return
    if args.pots:
        engine = open_engine(args.model, "cpu", "float32")
        ids = _ids(engine, args)
        told = {"model": Path(args.model).name, "text": Path(args.file).name, "tokens": len(ids)}
        _print(
            {**told, "capacity": args.capacity, "torch": torch.__version__, **pots(engine, ids, args)},
            args.out,
        )
        return
    ids = []
    slots, logits, held = {}, {}, {}
    for weights in ("full", "auto"):
        engine = open_engine(args.model, "cpu", "float32", weights=weights)
        ids = ids or _ids(engine, args)
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
    _print(result, args.out)


def _ids(engine: Engine, args: argparse.Namespace) -> list[int]:
    ids: list[int] = []
    for part in engine.tokenizer.encode_stream(_text(args.file)):
        ids += part
        if len(ids) >= args.tokens:
            break
    return ids[: args.tokens]


def _text(file: str) -> Iterable[str]:
    return [lzma.open(file, "rt", encoding="utf-8").read()] if file.endswith(".xz") else read_text(file)


def _print(result: dict[str, Any], out: Path | None) -> None:
    print(json.dumps(result, indent=1))
    if out:
        out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
