"""Tries on a card, each part a process: a token on 4 bits, 64 documents on 8, cycles in bf16 and fp8.

python benchmarks/speed/card_try.py --out DIR --seconds 195
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve()
PARTS = {"chain": 46, "int4": 42, "fp8": 42, "bf16": 42, "docs8": 42, "tests": 90}
sys.path[:0] = [str(HERE.parents[2] / "src"), str(HERE.parents[1])]
BEGAN = time.perf_counter()
ROWS: list[str] = []


def told(line: str) -> None:
    print(f"{time.perf_counter() - BEGAN:6.1f} {line}", flush=True)
    ROWS.append(line)


def chain(card: bool, limit: float) -> None:
    """A layer of an 8B shape on 4 bits, several in a row: kernels against their twins, then variants."""
    import torch
    import torch.nn.functional as F

    from infinipot.core.cuda import kernels, step_kernels, unit_product_kernels, units
    from infinipot.hf.cuda.grouped import Grouped

    device = torch.device("cuda" if card else "cpu")
    kind = torch.bfloat16 if card else torch.float16
    wide, inner, heads, kv, dim, slots, many = (4096, 14336, 32, 8, 128, 4096, 12) if card else (
        128, 192, 4, 2, 64, 128, 1)  # fmt: skip
    torch.manual_seed(0)

    def drawn(rows: int, columns: int) -> Grouped:
        data = torch.randint(0, 256, (columns // 64, rows, 32), dtype=torch.uint8, device=device)
        scale = (torch.rand(columns // 64, rows, device=device) * 0.004).half()
        return Grouped(data, scale, (-7.5 * scale.float()).half(), 64)

    def product(x: Any, w: Grouped, gated: bool = False) -> Any:
        return kernels.product(x, w.data, w.scale, w.least, 64, None, gated)

    shapes = (((heads + 2 * kv) * dim, wide), (wide, heads * dim), (2 * inner, wide), (wide, inner))
    layers = [[drawn(*shape) for shape in shapes] for _ in range(many)]
    pots = [torch.randn(2, kv, slots, dim, device=device).to(kind) for _ in range(many)]
    gain = torch.rand(wide, device=device).to(kind)
    x = (torch.randn(1, wide, device=device) * 0.02).to(kind)
    fill = torch.tensor([slots - 40], device=device)
    place = fill.clone()
    frequencies = 500000.0 ** (-torch.arange(0, dim, 2, device=device) / dim)
    at = torch.tensor([[pot[0].data_ptr(), pot[1].data_ptr()] for pot in pots], device=device)

    def off(found: Any, wanted: Any) -> float:
        wanted = wanted.double()
        return float((found.double() - wanted).norm() / wanted.norm())

    def ours(x: Any, attention: bool = True) -> Any:
        total, more, early = x, None, False
        cos, sin = kernels.angles_at(place, frequencies, 1.0, kind)
        for (qkv, o, gate_up, down), where in zip(layers, at, strict=True):
            total, h = kernels.add_norm(total, more, gain, 1e-5, early)
            h = product(h, qkv)
            if attention:
                h = kernels.attend_turned(h, cos, sin, where[:1], where[1:], fill, slots, dim**-0.5, kv)
            else:
                h = h[:, : heads * dim]
            total, h = kernels.add_norm(total, product(h, o), gain, 1e-5)
            more, early = product(product(h, gate_up, True), down), True
        return kernels.add_norm(total, more, gain, 1e-5)[1]

    def norm(h: Any) -> Any:
        return gain * (h.float() * (h.float().pow(2).mean(-1, keepdim=True) + 1e-5).rsqrt()).to(kind)

    def twin(x: Any) -> Any:
        angle = place.double() * frequencies.double()
        cos, sin = angle.cos().to(kind).float(), angle.sin().to(kind).float()

        def turned(h: Any) -> Any:
            a, b = h.float().chunk(2, -1)
            return torch.cat((a * cos - b * sin, b * cos + a * sin), -1).to(kind)

        total = x
        for (qkv, o, gate_up, down), pot in zip(layers, pots, strict=True):
            h = (norm(total).float() @ qkv.unpacked().T).to(kind)
            apart = h.view(-1, dim)
            q, k, v = turned(apart[:heads]), turned(apart[heads : heads + kv]), apart[heads + kv :]
            keys, values = pot[0].clone(), pot[1].clone()
            keys[:, fill], values[:, fill] = k[:, None], v[:, None]
            end = int(fill) + 1
            logits = torch.einsum("hgd,hsd->hgs", q.view(kv, -1, dim).float(), keys[:, :end].float())
            share = (logits * dim**-0.5).softmax(-1)
            h = torch.einsum("hgs,hsd->hgd", share, values[:, :end].float()).reshape(1, -1).to(kind)
            total = total + (h.float() @ o.unpacked().T).to(kind)
            gate, up = (norm(total).float() @ gate_up.unpacked().T).to(kind).chunk(2, -1)
            total = total + ((F.silu(gate) * up).float() @ down.unpacked().T).to(kind)
        return norm(total)

    wanted = twin(x)
    for early in (False, True):
        units.EARLY = early
        told(f"chain: error of {many} layers, early {early}: {off(ours(x), wanted):.5f}")
    if not card:
        return
    for shape, w in zip(shapes, layers[0], strict=True):
        y = torch.randn(1, shape[1], device=device).to(kind)
        plain = y.double() @ w.unpacked().double().T
        told(f"chain: error of {shape}: {off(product(y, w), plain):.5f}")

    def timed(name: str, **patches: Any) -> None:
        if time.perf_counter() - BEGAN > limit:
            return
        before = {}
        try:
            for place_, value in patches.items():
                module = units if place_ == "EARLY" else step_kernels if place_.startswith("PIECE") else (
                    unit_product_kernels)  # fmt: skip
                before[module, place_] = getattr(module, place_)
                setattr(module, place_, value)
            ours(x)
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                out = ours(x)
            for _ in range(20):
                graph.replay()
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            for _ in range(100):
                graph.replay()
            end.record()
            end.synchronize()
            us = begin.elapsed_time(end) * 10 / many
            told(f"chain: {us:7.2f} us a layer, error {off(out, wanted):.5f}  {name}")
        except Exception as error:
            told(f"chain: FAILED {name}: {type(error).__name__} {error}"[:300])
        finally:
            for (module, place_), value in before.items():
                setattr(module, place_, value)

    ahead, small = (4, 1, True, 168, 128), (8, 1, False, 128, 128)
    timed("begins late", EARLY=False)
    timed("begins early, sends for 64, wide 16", EARLY=True)
    timed("sends for nothing", SOON=0, SOON_WIDE=0)
    from speed import card_units

    card_units.PIECES = (512, 1024, 2048)
    table = card_units.Table(8)
    card_units.attention(table, device, 64)
    for what, _, text in table.rows:
        told(f"pots8: {what} {text}")
    timed("sends for 64, wide 0", SOON_WIDE=0)
    timed("sends for 64, wide 32", SOON_WIDE=32)
    timed("sends for 64, wide 64", SOON_WIDE=64)
    timed("sends for 16, wide 16", SOON=16)
    timed("small (8, 1)", SMALL=small)
    timed("small ahead", SMALL=ahead)
    timed("deep ahead", DEEP=ahead)
    timed("wide (4, 2) ahead", WIDE=(4, 2, True, 168, 64))
    timed("wide (4, 4)", WIDE=(4, 4, False, None, 128))
    timed("pieces of 32", PIECE=32)
    timed("pieces of 128", PIECE=128)
    timed("sends for 256, wide 16", SOON=256)
    timed("begins early, again")


def int4(setting: Any, limit: float) -> None:
    """A whole token on 4 bits, layers of reading uncompiled: they are not what is timed."""
    import torch

    from infinipot.core.cuda import units
    from infinipot.reading.sampling import Generation
    from infinipot.reading.step_group import GRAPHS
    from speed import card_parts

    subject = setting.subject("int4" if setting.device == "cuda" else "full")
    subject.reader(setting.recipe())
    told(f"int4: steps {subject.model.steps}")
    with torch.compiler.set_stance("force_eager"):
        for early in (True, False) if setting.device == "cuda" else (True,):
            units.EARLY = early
            for bits in (16, 8):
                if time.perf_counter() - BEGAN > limit:
                    return
                GRAPHS.clear()
                found = card_parts._timed(subject, setting.recipe(pot_bits=bits), 3 * setting.capacity, 128)
                told(f"int4: {found['decode_ms']:.3f} ms a token, pot of {bits} bits, early {early}, "
                     f"{found['engine']}")  # fmt: skip
        units.EARLY = True
        if setting.device == "cuda" and time.perf_counter() - BEGAN < limit:
            reader = subject.reader(setting.recipe())
            for _ in reader.reading_tokens([subject.text(2 * setting.capacity)]):
                pass
            list(reader.generate(subject.text(4), Generation(8), final=True))

            def answer() -> None:
                list(reader.generate(subject.text(1), Generation(40), final=True))

            answer()
            spent = card_parts._spent(subject, answer, 1, 24, 40)
            for name, value in spent.items():
                told(f"int4: {value} {name}")


def docs8(setting: Any, limit: float, count: int = 64, new_tokens: int = 32) -> None:
    """A step of 64 documents in pots of 8 bits, filled by a short text."""
    import statistics

    import torch

    from infinipot.reading.answer import answer_all
    from infinipot.reading.sampling import Generation
    from speed.ceilings import ceilings

    subject = setting.subject()
    first = subject.reader(setting.recipe(pot_bits=8))
    with torch.compiler.set_stance("force_eager"):
        for _ in first.reading_tokens([subject.text(2 * setting.capacity)]):
            pass
    told(f"docs8: read, fill {first.pot.fill}")
    count = count if setting.device == "cuda" else 2
    for turn in range(3):
        readers = [first.fork() for _ in range(count)]
        moments, last = [], time.perf_counter()
        prompts = [subject.text(1, seed=n) for n in range(count)]
        for index, _token in answer_all(readers, prompts, Generation(new_tokens)):
            if index == count - 1:
                moments.append(time.perf_counter() - last)
                last = time.perf_counter()
        fill = readers[0].pot.fill - new_tokens // 2
        del readers
        step = statistics.median(moments[4:])
        layer = first.pot.pot_layers[0]
        entry = layer.keys[0, :, 0].nbytes + layer.values[0, :, 0].nbytes + 8 * layer.keys.shape[1]
        embedding = subject.bare.get_input_embeddings().weight
        moved = subject.weight_bytes - embedding.nbytes + count * len(first.pot.pot_layers) * fill * entry
        copy = ceilings(subject.device, subject.dtype)["copy_gb_s"] * 1e9
        share = moved / copy / step
        told(f"docs8: {1000 * step:.3f} ms a step, {share:.3f} of the bound, copy {copy / 1e9:.0f}, "
             f"fill {fill}, turn {turn}")  # fmt: skip
        if time.perf_counter() - BEGAN > limit:
            return


def cycles(setting: Any, weights: str, limit: float) -> None:
    """Cycles of reading: single products, a profile, then variants."""
    import torch

    from infinipot.core import attention, scores
    from infinipot.hf.cuda import fp8
    from infinipot.hf.speed.joint import Part
    from infinipot.reading.step_group import GRAPHS
    from speed import card_parts

    card, name_ = setting.device == "cuda", "fp8" if weights == "fp8" else "bf16"
    if card:
        singles(weights == "fp8", fp8)
    subject = setting.subject(weights if card else "full")

    def timed(name: str, *patches: Any, compiles: bool = False, profile: bool = False) -> None:
        if time.perf_counter() - BEGAN > limit - (12 if compiles else 3):
            told(f"{name_}: no time for {name}")
            return
        try:
            with ExitStack() as stack:
                for patch in patches:
                    stack.enter_context(card_parts._patched(*patch))
                if compiles:
                    torch.compiler.reset()
                GRAPHS.clear()
                reader = subject.reader(setting.recipe())
                ids = subject.text(reader.config.chunk(len(reader.session.catalyst)))
                first = reader.config.capacity - len(reader.session.catalyst)
                reader.session.write(subject.text(first)[:2048], distil=False)
                reader.session.write(ids[: first - reader.pot.fill], distil=True)
                for _ in range(4):
                    reader.session.write(ids, distil=True)
                subject.synchronize()
                began = time.perf_counter()
                for _ in range(24 if card else 1):
                    reader.session.write(ids, distil=True)
                    reader.session.keep_pace()
                subject.synchronize()
                ms = 1000 * (time.perf_counter() - began) / (24 if card else 1)
                told(f"{name_}: {ms:.3f} ms a cycle, {ms * 131072 / len(ids) / 1000:.3f} s for 128K  {name}")
                if profile and card:

                    def cycle() -> None:
                        reader.session.write(ids, distil=True)

                    for what, value in card_parts._spent(subject, cycle, 4, 34).items():
                        told(f"{name_}: {value} {what}")
        except Exception as error:
            told(f"{name_}: FAILED {name}: {type(error).__name__} {error}"[:300])

    timed("as it is", profile=True)
    if weights == "full":
        timed("flash instead of cuDNN", (attention, "_has_cudnn", lambda *_: False))
        timed("256 tokens' logits", (scores, "DEVICE_LOGITS", 256 * subject.vocabulary))
        parts = [one for one in subject.model.decoder.modules() if isinstance(one, Part)]
        joint = {one.joint for one in parts if len(one.joint.sizes) == 3}
        for one in joint:
            one.always = True
        timed("queries, keys and values are one product", compiles=True)
        for one in {one.joint for one in parts}:
            one.always = True
        timed("gate and up too", compiles=True)
    else:
        from torch._dynamo import config as dynamo

        timed("256 tokens' logits", (scores, "DEVICE_LOGITS", 256 * subject.vocabulary))
        timed("norms compiled with what follows", (dynamo, "nested_graph_breaks", True), compiles=True)
        timed("scales after the product", (fp8, "rounded_product", scaled_after), compiles=True)


def scaled_after(x: Any, own: Any, data: Any, scale: Any, dtype: Any) -> Any:
    """A product without scales, which the compiler takes into what follows."""
    import torch

    one = torch.ones((), device=x.device)
    out = torch._scaled_mm(x, data.T, scale_a=one, scale_b=one, out_dtype=dtype, use_fast_accum=True)
    return (out.float() * own * scale).to(dtype)


def singles(floats: bool, fp8: Any) -> None:
    """Single products of a chunk, in TFLOP/s: apart and joint, with scales a row and with one."""
    import torch

    def rate(run: Any, flops: float, name: str) -> None:
        for _ in range(3):
            run()
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(30):
            run()
        end.record()
        end.synchronize()
        us = begin.elapsed_time(end) * 1000 / 30
        told(f"product: {us:8.1f} us {flops / us / 1e6:7.1f} TFLOP/s {name}")

    for name, rows, columns in (
        ("q, o", 4096, 4096), ("k or v", 1024, 4096), ("qkv", 6144, 4096), ("gate", 14336, 4096),
        ("gate and up", 28672, 4096), ("down", 4096, 14336), ("head", 128256, 4096),
    ):  # fmt: skip
        tokens = 384 if name == "head" else 2048
        flops = 2.0 * tokens * rows * columns
        x = torch.randn(tokens, columns, device="cuda", dtype=torch.bfloat16)
        w = torch.randn(rows, columns, device="cuda", dtype=torch.bfloat16)
        if not floats or name == "head":
            rate(lambda x=x, w=w: torch.nn.functional.linear(x, w), flops, f"bf16 {name}")
        if floats:
            a, b = x.to(fp8.KIND), w.to(fp8.KIND)
            own, scale = torch.ones(tokens, 1, device="cuda"), torch.ones(1, rows, device="cuda")
            one, kind = torch.ones((), device="cuda"), {"out_dtype": torch.bfloat16, "use_fast_accum": True}
            rate(lambda a=a, b=b, o=own, s=scale, k=kind: torch._scaled_mm(a, b.T, o, s, **k), flops,
                 f"fp8, scales a row {name}")  # fmt: skip
            rate(lambda a=a, b=b, o=one, k=kind: torch._scaled_mm(a, b.T, o, o, **k), flops,
                 f"fp8, one scale {name}")  # fmt: skip


def part(name: str, args: argparse.Namespace) -> int:
    if name == "chain":
        chain(args.device == "cuda", args.limit)
        return 0
    if name == "tests":
        wanted = ["few_bits", "pots_of_8_bits", "kernels", "together"]
        runner = str(HERE.parents[2] / "tests" / "gpu" / "run.py")
        return subprocess.run([sys.executable, runner, *wanted], check=False).returncode
    from speed.card_parts import Setting

    setting = Setting(args.shape, args.device, 131072, 1048576)
    if name == "int4":
        int4(setting, args.limit)
    elif name == "docs8":
        docs8(setting, args.limit)
    else:
        cycles(setting, "fp8" if name == "fp8" else "full", args.limit)
    return 0


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--parts", default="chain,int4,fp8,bf16,docs8")
    parser.add_argument("--seconds", type=float, default=195)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--shape", default="llama-3-8b")
    parser.add_argument("--only", default="")
    parser.add_argument("--limit", type=float, default=60)
    args = parser.parse_args()
    if args.only:
        return part(args.only, args)
    args.out.mkdir(parents=True, exist_ok=True)
    table, log = args.out / "tries.json", args.out / "tries.log"
    found = json.loads(table.read_text()) if table.is_file() else {}
    for name in args.parts.split(","):
        left = args.seconds - (time.perf_counter() - BEGAN)
        if left < 10:
            told(f"{name}: not begun, out of time")
            continue
        limit = min(PARTS[name], left)
        command = [sys.executable, HERE, "--out", args.out, "--only", name, "--device", args.device,
                   "--shape", args.shape, "--limit", limit - 4]  # fmt: skip
        began, lines = time.perf_counter(), list[str]()
        with log.open("a") as stream:
            stream.write(f"## {name}\n")
            stream.flush()
            start = stream.tell()
            try:
                done = subprocess.run([str(one) for one in command], stdout=stream,
                                      stderr=subprocess.STDOUT, timeout=limit, check=False)  # fmt: skip
                ended = f"ended with {done.returncode}"
            except subprocess.TimeoutExpired:
                ended = "cut off"
        with log.open() as stream:
            stream.seek(start)
            lines = [line.rstrip() for line in stream]
        found[name] = [*lines[-90:], f"{ended} after {time.perf_counter() - began:.1f} s"]
        table.write_text(json.dumps(found, indent=1) + "\n")
    for name, lines in found.items():
        print(f"## {name}")
        print("\n".join(line[:150] for line in lines))
    return 0


if __name__ == "__main__":
    sys.exit(main())
