"""What a CPU's products and attention can do at smollm2's shapes, and a profile of reading and decoding.

python benchmarks/cpu.py --threads 2 --out docs/results/cpu.json --profile docs/results/cpu-profile.txt
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from torch.profiler import ProfilerActivity, profile

from infinipot.engine import open_engine
from infinipot.hf.speed.products import Packed
from infinipot.reading.sampling import Generation
from infinipot.recipes.recipe import Recipe


def seconds(run, times: int = 7) -> float:
    run()
    found = []
    for _ in range(times):
        started = time.perf_counter()
        run()
        found.append(time.perf_counter() - started)
    return statistics.median(found)


def products(tokens: int, wide: int, narrow: int) -> dict[str, float]:
    """GFLOP/s of one product in torch's own layout and in oneDNN's."""
    x, weight = torch.randn(tokens, narrow), torch.randn(wide, narrow)
    work = 2 * tokens * wide * narrow / 1e9
    half = x.bfloat16()
    exact, rounded = Packed(weight, None, torch.float32), Packed(weight, None, torch.bfloat16)
    ways = {
        "float32, torch": lambda: F.linear(x, weight),
        "float32, oneDNN": lambda: exact(x),
        "bfloat16, oneDNN": lambda: rounded(half),
    }
    return {name: round(work / seconds(way), 1) for name, way in ways.items()}


def attention() -> dict[str, float]:
    """GFLOP/s of torch's flash kernel, 2,048 queries on 2,048 keys, nine heads."""
    q, k = torch.randn(2, 1, 9, 2048, 64)
    flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    work = 4 * 9 * 2048 * 2048 * 64 / 1e9
    half = q.bfloat16(), k.bfloat16()
    return {
        "float32": round(work / seconds(lambda: flash(q, k, k, 0.0, False)), 1),
        "float32, causal, half of the work": round(work / 2 / seconds(lambda: flash(q, k, k, 0.0, True)), 1),
        "bfloat16": round(work / seconds(lambda: flash(half[0], half[1], half[1], 0.0, False)), 1),
    }


def one_token() -> dict[str, float]:
    """Milliseconds of all of a decoder's products for one token."""
    shapes = [(960, 576), (576, 576), (3072, 576), (576, 1536)] * 30
    weights = [torch.randn(wide, narrow) for wide, narrow in shapes]
    inputs = [torch.randn(1, narrow).bfloat16() for _, narrow in shapes]
    packed = [Packed(weight, None, torch.bfloat16) for weight in weights]
    scales = [(weight.abs().amax(1) / 127).bfloat16() for weight in weights]
    eight = [(w / s.float()[:, None]).round().to(torch.int8) for w, s in zip(weights, scales, strict=True)]

    def bytes_(x=inputs, w=eight, s=scales) -> None:
        for a, b, c in zip(x, w, s, strict=True):
            torch._weight_int8pack_mm(a, b, c)

    rounded = seconds(lambda: [p(x) for p, x in zip(packed, inputs, strict=True)])
    return {"bfloat16": round(1000 * rounded, 2), "int8": round(1000 * seconds(bytes_), 2)}


def profiles(model: str) -> str:
    engine = open_engine(model, "cpu", "mixed")
    ids = torch.randint(100, engine.model.vocabulary - 100, (4096,)).tolist()
    reader = engine.reader(Recipe.named(capacity=4136, keep=2048, format=engine.format))
    reader.session.write(ids[:2048])
    with profile(activities=[ProfilerActivity.CPU]) as reading:
        reader.session.write(ids[2048:], distil=True)
    reader = engine.reader(Recipe.named(capacity=4400, keep=2200, format=engine.format))
    for start in (0, 2048):
        reader.session.write(ids[start : start + 2048], scored=False)
    answer = reader.generate([5, 6, 7], Generation(40), final=True)
    for _ in range(8):
        next(answer)
    with profile(activities=[ProfilerActivity.CPU]) as decoding:
        for _ in range(10):
            next(answer)
    parts = {"One cycle, 2,048 new tokens on 2,048 cached": reading, "Ten tokens on 4,100 slots": decoding}
    tables = [
        f"{name}\n{seen.key_averages().table(sort_by='self_cpu_time_total', row_limit=14)}"
        for name, seen in parts.items()
    ]
    return "\n".join(tables)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--out", type=Path)
    parser.add_argument("--profile", type=Path)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    result = {
        "threads": args.threads,
        "torch": torch.__version__,
        "products_gflops, 2048 x 576 x 1536": products(2048, 1536, 576),
        "products_gflops, 512 x 576 x 49152": products(512, 49152, 576),
        "attention_gflops": attention(),
        "one_token_products_ms": one_token(),
    }
    print(json.dumps(result, indent=1))
    if args.out:
        args.out.write_text(json.dumps(result, indent=1) + "\n")
    if args.profile:
        args.profile.write_text(profiles(args.model) + "\n")


if __name__ == "__main__":
    main()
