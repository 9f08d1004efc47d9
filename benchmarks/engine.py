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
from transformers import AutoConfig, DynamicCache, LlamaForCausalLM

from infinipot.core import scores
from infinipot.core.attention import _merged, attend_fixed
from infinipot.core.cuda import dispatch as compiling
from infinipot.core.cuda import kernels
from infinipot.core.cuda.dispatch import fused
from infinipot.hf import shapes
from infinipot.hf.model import HFModel
from infinipot.hf.speed.prepare import fuse
from infinipot.reading import room
from infinipot.reading.answer import answer_all
from infinipot.reading.reader import Reader
from infinipot.reading.sampling import Generation
from infinipot.recipes.recipe import Recipe
from infinipot.testing.tokenizer import ByteTokenizer

SHAPES = {
    "llama-3-8b": shapes.SHAPES["llama-3-8b"],
    "small": {
        "model_type": "llama",
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
        model = LlamaForCausalLM(AutoConfig.for_model(**SHAPES[shape])).eval().requires_grad_(False)
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
    long = seconds(lambda: a @ b, 2000)  # some three seconds: what the card holds when it is warm
    return {
        "matmul_tflops": 2 * 8192**3 / matmul / 1e12,
        "matmul_tflops_sustained": 2 * 8192**3 / long / 1e12,
        "copy_tb_s": 2 * source.nbytes / copy / 1e12,
    }


def attentions() -> dict[str, float]:
    """Milliseconds a layer of ways to attend: 2,048 new on 2,048 cached, grouped heads."""
    q = torch.randn(1, 32, 2048, 128, dtype=torch.bfloat16, device="cuda")
    k, v = (torch.randn(1, 8, 4096, 128, dtype=torch.bfloat16, device="cuda") for _ in range(2))
    flash, cudnn = (
        torch.ops.aten._scaled_dot_product_flash_attention,
        torch.ops.aten._scaled_dot_product_cudnn_attention,
    )

    def split(one) -> torch.Tensor:
        new, new_lse = one(k[:, :, 2048:], v[:, :, 2048:], True)
        old, old_lse = one(k[:, :, :2048], v[:, :, :2048], False)
        share = torch.sigmoid(old_lse.view(1, 32, 2048) - new_lse.view(1, 32, 2048))[..., None]
        return torch.lerp(new, old, share.to(new.dtype))

    ways = {
        "flash lower-right": lambda: flash(q, k, v, 0.0, True, False)[0],
        "flash split": lambda: split(lambda k, v, c: flash(q, k, v, 0.0, c, False)[:2]),
        "cudnn split": lambda: split(lambda k, v, c: cudnn(q, k, v, None, True, 0.0, c, False)[:2]),
        "cudnn split, repeated heads": lambda: split(
            lambda k, v, c: cudnn(
                q, k.repeat_interleave(4, 1), v.repeat_interleave(4, 1), None, True, 0.0, c, False
            )[:2]
        ),
    }
    wanted, found = ways["flash lower-right"](), {}
    for name, way in ways.items():
        try:
            error = float((way() - wanted).float().norm() / wanted.float().norm())
            found[name] = 1000 * statistics.median(seconds(way, 20) for _ in range(3))
            found[name + ", relative difference"] = error
        except Exception as error:  # a way this build of torch does not have
            found[name] = str(error).split("\n")[0][:120]
    return found


def graphed_us(run, times: int = 20) -> float:
    """Microseconds of a computation inside a graph, so that launching it costs nothing."""
    run()
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        for _ in range(times):
            run()
    return 1e6 * seconds(graph.replay, 20) / times


def relative(found: torch.Tensor, wanted: torch.Tensor) -> float:
    return float((found.double() - wanted.double()).norm() / wanted.double().norm())


def kernel_times() -> dict[str, object]:
    """Each kernel against its plain twin at the shape of one layer: error, and microseconds of both."""
    half = {"dtype": torch.bfloat16, "device": "cuda"}
    worst = 0.0
    for slots, heads, kv, dim in ((4096, 32, 8, 128), (1000, 12, 2, 128), (2048, 9, 3, 64)):
        q, new, new_values = (torch.randn(2, many, 1, dim, **half) for many in (heads, kv, kv))
        k, v = ([torch.randn(1, kv, slots, dim, **half) for _ in range(2)] for _ in range(2))
        at = [torch.tensor([x.data_ptr() for x in those], device="cuda") for those in (k, v)]
        for fills in ((0, 1), (255, 256), (slots // 2, slots - 1)):
            length = torch.tensor(fills, device="cuda")
            found = kernels.attend_rows(q, new, new_values, *at, length, slots, dim**-0.5)
            for row in range(2):
                part = slice(row, row + 1)
                wanted = attend_fixed(
                    q[part].double(), k[row].double(), v[row].double(), dim**-0.5, length[part]
                )
                worst = max(worst, relative(found[part], wanted))
    found = {"decode, worst relative error": worst}
    for many in (1, 8):
        q, new, new_values = (torch.randn(many, heads, 1, 128, **half) for heads in (32, 8, 8))
        k, v = ([torch.randn(1, 8, 4096, 128, **half) for _ in range(many)] for _ in range(2))
        at = [torch.tensor([x.data_ptr() for x in those], device="cuda") for those in (k, v)]
        length = torch.full((many,), 4000, device="cuda")
        for piece in (128, 256, 512):
            kernels.PIECE = piece
            found[f"decode {many}, pieces of {piece}, us"] = graphed_us(
                lambda q=q, new=new, nv=new_values, at=at, length=length: kernels.attend_rows(
                    q, new, nv, *at, length, 4096, 0.1
                )
            )
        kernels.PIECE = 256
    q = torch.randn(1, 26, 32, 128, **half).transpose(1, 2)
    keys = torch.randn(1, 8, 4096, 128, **half)
    plain = fused(scores.received, q.device)
    found["catalyst score, relative error"] = relative(
        kernels.received(q, keys, 0.09), scores.received(q.double(), keys.double(), 0.09)
    )
    found["catalyst score, us"] = graphed_us(lambda: kernels.received(q, keys, 0.09))
    found["catalyst score in torch, us"] = graphed_us(lambda: plain(q, keys, 0.09))
    a, b = torch.randn(1, 2048, 32, 128, **half).transpose(1, 2), torch.randn(1, 2048, 32, 128, **half)
    b = b.transpose(1, 2)
    lse, other = torch.randn(2, 1, 32, 2048, device="cuda")
    found["merge, relative error"] = relative(
        kernels.merge(a.clone(), b, lse, other), _merged(a.double(), b.double(), lse, other)
    )
    found["merge, us"] = graphed_us(lambda: kernels.merge(a, b, lse, other))
    found["merge in torch, us"] = graphed_us(lambda: fused(_merged, a.device)(a, b, lse, other))
    return found


def reader_on(model: HFModel, capacity: int, keep: int) -> Reader:
    recipe = Recipe.named(capacity=capacity, keep=keep, tail="distil", catalyst="summarize all above")
    return recipe.reader(model, Endless())


def ids_of(count: int, vocabulary: int) -> list[int]:
    return torch.randint(0, vocabulary, (count,), generator=torch.Generator().manual_seed(1)).tolist()


def read(reader: Reader, ids: list[int]) -> None:
    for _ in reader.reading_tokens([ids]):
        pass


def timed(reader: Reader, ids: list[int], cycles: list[float]) -> None:
    last = time.perf_counter()
    for _ in reader.reading_tokens([ids]):
        now = time.perf_counter()
        cycles.append(now - last)
        last = now


def in_common(one: Reader, other: Reader) -> float:
    """The share of slots that two pots both hold."""
    return statistics.mean(
        len(set(x.tolist()) & set(y.tolist())) / len(x)
        for a, b in zip(one.pot.pot_layers, other.pot.pot_layers, strict=True)
        for x, y in zip(a.source[0, :, : a.fill], b.source[0, :, : b.fill], strict=True)
    )


def check(dtype: torch.dtype) -> dict[str, object]:
    """Captured against plain: kept slots, and the tokens of an answer."""
    bare, exactly = HFModel(build("small", dtype)), HFModel(build("small", dtype).float())
    model = HFModel(build("small", dtype))
    fuse(model.decoder)
    ids = ids_of(4000, 1024)
    static, plain, wide = (reader_on(one, 512, 256) for one in (model, bare, exactly))
    plain.session.graphs = None

    def same() -> str:
        pairs = list(zip(static.pot.pot_layers, plain.pot.pot_layers, strict=True))
        slots = [torch.equal(a.source[:, :, : a.fill], b.source[:, :, : b.fill]) for a, b in pairs]
        return f"{sum(slots)}/{len(slots)}"

    read(static, ids)
    compiling.KERNELS = False  # the plain side: no graphs, no fusing, no kernels
    wide.session.graphs = None
    read(plain, ids)
    read(wide, ids)
    compiling.KERNELS = True
    reading = same()
    exact = dtype == torch.float32
    common = {"plain": in_common(static, plain), "float32": in_common(static, wide)}
    common["plain and float32"] = in_common(plain, wide)
    assert not exact or reading == f"{len(plain.pot.layers)}/{len(plain.pot.layers)}", "other slots were kept"
    answers = [list(one.generate([1, 2, 3], Generation(600))) for one in (static, plain)]
    assert not exact or answers[0] == answers[1], "captured decoding gave other tokens"
    return {
        "dtype": str(dtype),
        "layers_with_the_same_slots": reading,
        "share_of_slots_in_common_with": common,
        "the same after an answer longer than the pot": same()
        if answers[0] == answers[1]
        else "other answer",
        "same_answer_tokens": f"{sum(a == b for a, b in zip(*answers, strict=True))}/600",
        "graphs": len(static.session.graphs.captured),
    }


def decode_ms(reader: Reader, count: int = 64) -> float:
    steps: list[float] = []
    last = time.perf_counter()
    for _ in reader.generate([5, 6, 7], Generation(count), final=True):
        now = time.perf_counter()
        steps.append(now - last)
        last = now
    return 1000 * statistics.median(steps[8:])


def parts_ms(reader: Reader, ids: list[int], rounds: int = 15) -> dict[str, float]:
    """Milliseconds of a steady cycle, of its forward with novelty, and of its forward alone, in turns."""
    reader.clear()
    read(reader, ids[:16384])
    reader.session.flush()
    room.before_question(reader.session, 0, 0)
    kept = reader.pot.fork()
    chunk = ids[: reader.config.chunk(len(reader.session.catalyst))]
    reader.pot.lengths |= {len(chunk)}  # as often as the complete cycle's: compiled like it
    ways = {
        "all": {"distil": True},
        "with novelty": {"distil": False},
        "forward alone": {"distil": False, "scored": False},
    }
    times: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(rounds + 3):
        for name, how in ways.items():
            reader.pot.restore(kept)
            took = seconds(lambda how=how: reader.session.write(chunk, **how))
            if turn >= 3:  # first seen, then captured, then warm
                times[name].append(1000 * took)
    found = {name: statistics.median(values) for name, values in times.items()}
    found["distillation incl. catalyst, share"] = 1 - found["with novelty"] / found["all"]
    found["novelty, share"] = (found["with novelty"] - found["forward alone"]) / found["all"]
    return found


def together_ms(model: HFModel, ids: list[int], capacity: int, keep: int, many: int) -> dict[str, float]:
    """Decode tokens a second of several documents at once against one alone, in one run."""
    readers = [reader_on(model, capacity, keep) for _ in range(many)]
    for index, reader in enumerate(readers):
        read(reader, ids[: capacity + 700 * (index + 1)])
    rates = {}
    for count in (1, many):
        for _ in range(2):  # the second time everything is captured
            some = [reader.fork() for reader in readers[:count]]
            steps, last = [], time.perf_counter()
            for index, _ in answer_all(some, [[5, 6, 7]] * count, Generation(64)):
                if index == count - 1:
                    now = time.perf_counter()
                    steps.append(now - last)
                    last = now
        rates[count] = count / statistics.median(steps[8:])
    return {
        "one, tokens/s": rates[1],
        f"{many} at once, tokens/s": rates[many],
        "ratio": rates[many] / rates[1],
    }


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


def profiled(run, rows: int = 24) -> list[tuple[str, float, int]]:
    """Milliseconds of the costliest kernels."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        run()
        torch.cuda.synchronize()
    parts = sorted(seen.key_averages(), key=lambda part: -part.self_device_time_total)
    found = [(part.key[:90], part.self_device_time_total / 1000, part.count) for part in parts]
    return [("all", sum(row[1] for row in found), sum(row[2] for row in found)), *found[:rows]]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--capacity", type=int, default=4096)
    parser.add_argument("--keep", type=int, default=2048)
    parser.add_argument("--lengths", default="16384,131072")
    parser.add_argument("--full", type=int, default=0, help="also transformers with full KV at this length")
    parser.add_argument("--fuse", default="DecoderLayer", help="kinds of modules to compile")
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--no-kernel", action="store_true", help="plain torch instead of our kernels")
    parser.add_argument("--documents", type=int, default=8, help="how many are answered at once")
    parser.add_argument("--quick", action="store_true", help="no checks and no attention variants")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    result: dict[str, object] = {
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "fused": args.fuse,
        "checks": [] if args.quick else [check(torch.float32), check(torch.bfloat16)],
        "ceilings": ceilings(),
        "attention_ms": {} if args.quick else attentions(),
    }
    torch._dynamo.reset()  # the checks' shapes would make the large model's dynamic
    compiling.KERNELS = not args.no_kernel
    if not (args.no_kernel or args.quick):
        result["kernels"] = kernel_times()
    print(json.dumps(result, indent=1), flush=True)
    torch.cuda.empty_cache()
    bare = build("llama-3-8b", torch.bfloat16)
    parameters = sum(weight.numel() for weight in bare.parameters())
    if args.full:
        result["full_kv"] = full_kv(bare, args.full)
        print("full KV", result["full_kv"], flush=True)
        torch.cuda.empty_cache()
    model = HFModel(bare)
    if args.fuse:
        fuse(model.decoder, args.fuse.split(","))
    weights = torch.cuda.memory_allocated()
    reader = reader_on(model, args.capacity, args.keep)
    ids = ids_of(max(map(int, args.lengths.split(","))), 1000)
    warm = seconds(lambda: read(reader, ids[:16384]))
    list(reader.generate([5, 6], Generation(6), final=True))
    result["first_16k_seconds"] = warm  # compiling and capturing included
    print(
        f"first 16K, compiling and capturing: {warm:.1f} s; graphs {len(reader.session.graphs.captured)}",
        flush=True,
    )
    rows = []
    asked = [int(length) for length in args.lengths.split(",")]
    for length in sorted(asked + [one for one in asked if one <= 2**17]):  # short ones twice
        reader.clear()
        torch.cuda.reset_peak_memory_stats()
        cycles: list[float] = []
        took = seconds(lambda length=length, cycles=cycles: timed(reader, ids[:length], cycles))
        share = 2 * parameters * length / took / 1e12 / result["ceilings"]["matmul_tflops"]
        rows.append(
            {
                "length": length,
                "seconds": took,
                "tokens_s": length / took,
                "cycle_ms": [round(1000 * statistics.median(part), 1) for part in (cycles[2:8], cycles[-8:])],
                "share_of_ceiling": share,
                "decode_ms": decode_ms(reader),
                "extra_gb": (torch.cuda.max_memory_allocated() - weights) / 1e9,
                "extra_reserved_gb": (torch.cuda.max_memory_reserved() - weights) / 1e9,
            }
        )
        print(rows[-1], flush=True)
    result["rows"] = rows
    result["cycle_ms"] = parts_ms(reader, ids)
    print(result["cycle_ms"], flush=True)
    result["together"] = together_ms(model, ids, args.capacity, args.keep, args.documents)
    print(result["together"], flush=True)
    if args.profile:
        reader.clear()
        read(reader, ids[:8192])
        runs = {
            "reading 6,084 tokens": lambda: read(reader, ids[:6084]),
            "decoding 16 tokens": lambda: list(reader.generate([5, 6, 7], Generation(16), final=True)),
        }
        result["profile"] = {name: profiled(run) for name, run in runs.items()}
        for name, kernels in result["profile"].items():
            print(name)
            for kernel, ms, count in kernels:
                print(f"{ms:9.2f} ms {count:6d}  {kernel}")
    if args.out:
        args.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
