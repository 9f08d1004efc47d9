"""The static engine on one GPU, at the shape of Llama-3-8B with random weights: checks, then times.

    python benchmarks/engine.py --lengths 16384,131072,1048576 --full 131072 --out engine.json

Prints reading speed as a share of this card's own matmul ceiling (2 x parameters x
tokens), decode time after the shortest and the longest text, memory beyond the
weights, and transformers with full KV beside it.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path

import torch
import transformers
from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM

from infinipot.hf.fuse import fuse
from infinipot.hf.model import HFModel
from infinipot.reader import Generation, Reader
from infinipot.recipes import Recipe
from infinipot.testing import ByteTokenizer

SHAPES = {
    "llama-3-8b": {
        "vocab_size": 128256,
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "max_position_embeddings": 8192,
        "rope_parameters": {"rope_type": "default", "rope_theta": 500000.0},
    },
    "small": {
        "vocab_size": 1024,
        "hidden_size": 512,
        "intermediate_size": 1024,
        "num_hidden_layers": 4,
        "num_attention_heads": 8,
        "num_key_value_heads": 2,
        "max_position_embeddings": 8192,
    },
}


class Endless(ByteTokenizer):
    stop_ids = frozenset()


def build(shape: str, dtype: torch.dtype) -> LlamaForCausalLM:
    torch.manual_seed(0)
    torch.set_default_dtype(dtype)
    with torch.device("cuda"):
        model = LlamaForCausalLM(LlamaConfig(**SHAPES[shape])).eval().requires_grad_(False)
    torch.set_default_dtype(torch.float32)
    return model


def seconds(run, times: int = 1) -> float:
    torch.cuda.synchronize()
    started = time.perf_counter()
    for _ in range(times):
        run()
    torch.cuda.synchronize()
    return (time.perf_counter() - started) / times


def ceilings() -> dict[str, float]:
    a, b = (torch.randn(8192, 8192, dtype=torch.bfloat16, device="cuda") for _ in range(2))
    source, target = (torch.randn(2**29, dtype=torch.float32, device="cuda") for _ in range(2))
    a @ b
    target.copy_(source)
    matmul = statistics.median(seconds(lambda: a @ b, 10) for _ in range(3))
    copy = statistics.median(seconds(lambda: target.copy_(source), 5) for _ in range(3))
    return {"matmul_tflops": 2 * 8192**3 / matmul / 1e12, "copy_tb_s": 2 * source.nbytes / copy / 1e12}


def reader_on(model: HFModel, capacity: int, keep: int) -> Reader:
    recipe = Recipe.named(capacity=capacity, keep=keep, catalyst="summarize all above")
    return recipe.reader(model, Endless())


def ids_of(count: int, vocabulary: int) -> list[int]:
    return torch.randint(0, vocabulary, (count,), generator=torch.Generator().manual_seed(1)).tolist()


def read(reader: Reader, ids: list[int]) -> None:
    for _ in reader.reading_tokens([ids]):
        pass


def check(dtype: torch.dtype) -> dict[str, object]:
    """Captured against plain: kept slots, and the tokens of an answer."""
    model = HFModel(build("small", dtype))
    ids = ids_of(4000, 1024)
    static, plain = reader_on(model, 512, 256), reader_on(model, 512, 256)
    plain._static = None
    found = []
    for one in (static, plain):
        read(one, ids)
        found.append(list(one.generate([1, 2, 3], Generation(600))))
    slots = [
        bool((a.source[:, :, : a.fill] == b.source[:, :, : b.fill]).all())
        for a, b in zip(static.pot.pot_layers, plain.pot.pot_layers, strict=True)
    ]
    read(static, ids)
    read(plain, ids)
    again = [
        bool((a.source[:, :, : a.fill] == b.source[:, :, : b.fill]).all())
        for a, b in zip(static.pot.pot_layers, plain.pot.pot_layers, strict=True)
    ]
    return {
        "dtype": str(dtype),
        "layers_with_the_same_slots": f"{sum(slots)}/{len(slots)}, after more {sum(again)}/{len(again)}",
        "same_answer_tokens": f"{sum(a == b for a, b in zip(*found, strict=True))}/600",
        "graphs": len(static._static._graphs),
    }


def decode_ms(reader: Reader, count: int = 64) -> float:
    steps: list[float] = []
    last = time.perf_counter()
    for _ in reader.generate([5, 6, 7], Generation(count), final=True):
        now = time.perf_counter()
        steps.append(now - last)
        last = now
    return 1000 * statistics.median(steps[8:])


def full_kv(model: LlamaForCausalLM, length: int) -> dict[str, float]:
    model.set_attn_implementation("sdpa")
    ids = torch.randint(0, 1000, (1, length), device="cuda")
    cache = DynamicCache(config=model.config)
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    with torch.no_grad():
        model(ids[:, :8192], logits_to_keep=1)
        took = seconds(lambda: model(ids, past_key_values=cache, logits_to_keep=1))
    return {"seconds": took, "extra_gb": (torch.cuda.max_memory_allocated() - before) / 1e9}


def profiled(reader: Reader, ids: list[int], rows: int = 22) -> list[tuple[str, float, int]]:
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        read(reader, ids)
        torch.cuda.synchronize()
    parts = sorted(seen.key_averages(), key=lambda part: -part.self_device_time_total)
    return [(part.key[:70], part.self_device_time_total / 1000, part.count) for part in parts[:rows]]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--capacity", type=int, default=4096)
    parser.add_argument("--keep", type=int, default=2048)
    parser.add_argument("--lengths", default="16384,131072")
    parser.add_argument("--full", type=int, default=0, help="also transformers with full KV at this length")
    parser.add_argument("--no-fuse", action="store_true")
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    result: dict[str, object] = {
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "fused": not args.no_fuse,
        "checks": [check(torch.float32), check(torch.bfloat16)],
        "ceilings": ceilings(),
    }
    print(json.dumps(result, indent=1), flush=True)
    torch.cuda.empty_cache()
    bare = build("llama-3-8b", torch.bfloat16)
    parameters = sum(weight.numel() for weight in bare.parameters())
    if args.full:
        result["full_kv"] = full_kv(bare, args.full)
        print("full KV", result["full_kv"], flush=True)
        torch.cuda.empty_cache()
    model = HFModel(bare)
    if not args.no_fuse:
        fuse(model.decoder)
    weights = torch.cuda.memory_allocated()
    reader = reader_on(model, args.capacity, args.keep)
    ids = ids_of(max(map(int, args.lengths.split(","))), 1000)
    warm = seconds(lambda: read(reader, ids[:16384]))
    list(reader.generate([5, 6], Generation(6), final=True))
    print(
        f"first 16K, compiling and capturing: {warm:.1f} s; graphs {len(reader._static._graphs)}", flush=True
    )
    rows = []
    for length in map(int, args.lengths.split(",")):
        reader.clear()
        torch.cuda.reset_peak_memory_stats()
        took = seconds(lambda length=length: read(reader, ids[:length]))
        share = 2 * parameters * length / took / 1e12 / result["ceilings"]["matmul_tflops"]
        rows.append(
            {
                "length": length,
                "seconds": took,
                "tokens_s": length / took,
                "share_of_ceiling": share,
                "decode_ms": decode_ms(reader),
                "extra_gb": (torch.cuda.max_memory_allocated() - weights) / 1e9,
                "extra_reserved_gb": (torch.cuda.max_memory_reserved() - weights) / 1e9,
            }
        )
        print(rows[-1], flush=True)
    result["rows"] = rows
    if args.profile:
        reader.clear()
        read(reader, ids[:8192])
        result["profile"] = profiled(reader, ids[:6084])
        for name, ms, count in result["profile"]:
            print(f"{ms:9.2f} ms {count:6d}  {name}")
    if args.out:
        args.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
