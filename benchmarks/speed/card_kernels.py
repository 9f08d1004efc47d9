"""Single kernels on a card: how near their reading of memory comes to a copy's, with other tiles too."""

from __future__ import annotations

from typing import Any

import torch

from infinipot.core.cuda import attention_kernels, kernels, product_kernels, rounded_attention_kernels
from infinipot.core.cuda.graphs import Graphs
from infinipot.core.rope import Rotation
from infinipot.core.rounded_layer import RoundedLayer
from infinipot.hf.cuda import fp8
from infinipot.hf.cuda.grouped import Grouped

WEIGHTS = {"qkv": (6144, 4096), "o": (4096, 4096), "gate and up": (28672, 4096), "down": (4096, 14336)}
TILES = ((16, 4, 512), (32, 2, 512), (32, 4, 512), (32, 4, 1024), (32, 8, 512), (64, 4, 512))
"""Columns a program computes, groups it reads at a time, programs wanted."""
DOCUMENTS, SLOTS = 64, 4096
COPIES = 4  # of a weight: more than the cache holds


TILE = ("COLUMNS", "AT_ONCE", "PROGRAMS")


def _milliseconds(run: Any) -> float:
    """Milliseconds of a run in a captured graph; without end where a tile is too large for the card."""
    from triton.runtime.errors import OutOfResources
    from triton.testing import do_bench_cudagraph

    try:
        return float(do_bench_cudagraph(run, rep=20))
    except OutOfResources:
        return float("inf")


def _best(name: str, run: Any, found: dict[str, Any]) -> tuple[float, Any]:
    """Milliseconds of a product with the best of all tiles; every tile's are noted."""
    before = [getattr(product_kernels, one) for one in TILE]
    times = {}
    for tile in TILES:
        for one, value in zip(TILE, tile, strict=True):
            setattr(product_kernels, one, value)
        times[tile] = _milliseconds(run)
        found[f"{name}, us, tile {tile}"] = 1000 * times[tile] / COPIES
    for one, value in zip(TILE, before, strict=True):
        setattr(product_kernels, one, value)
    best = min(times, key=times.__getitem__)
    return times[best] / COPIES, best


def fp8_ceiling(side: int) -> float:
    """TFLOP/s of a large product in 8-bit floats with a scale a row."""
    a, b = (torch.randn(side, side, device="cuda").to(fp8.KIND) for _ in range(2))
    scale = torch.ones(side, 1, device="cuda")

    def run() -> None:
        torch._scaled_mm(
            a, b.T, scale_a=scale, scale_b=scale.T, out_dtype=torch.bfloat16, use_fast_accum=True
        )

    return 2 * side**3 / 1e9 / _milliseconds(run)


FLOAT_TILES = (
    (4, 2, 1024, True), (4, 2, 1024, False), (4, 4, 1024, True), (4, 1, 1024, True), (8, 2, 1024, True),
    (8, 2, 1024, False), (8, 2, 512, True), (8, 4, 512, False), (2, 2, 2048, True),
)  # fmt: skip
"""Columns a program computes of one token's product in 8-bit floats, pieces at a time, numbers in one, and
whether the token is read anew for every column."""


def eight_bit_floats(tokens: int = 2048) -> dict[str, Any]:
    """Products of an 8B shape in 8-bit floats: of a token alone by our kernel and torch's, of a chunk's."""
    found: dict[str, Any] = {}
    device = torch.device("cuda")
    names = ("FLOATS_COLUMNS", "FLOATS_AT_ONCE", "FLOATS_WIDTH", "FLOATS_SPREAD")
    before = [getattr(product_kernels, one) for one in names]
    for name, (rows, columns) in WEIGHTS.items():
        drawn = [torch.randn(rows, columns, device=device) for _ in range(COPIES)]
        copies = [fp8.rounded_weight([one], device) for one in drawn]
        x = torch.randn(1, columns, device=device).bfloat16()

        def alone(x: torch.Tensor = x, copies: list[fp8.Fp8] = copies) -> None:
            for one in copies:
                kernels.product_alone(x, one.data, one.scale)

        def by_torch(x: torch.Tensor = x, copies: list[fp8.Fp8] = copies) -> None:
            for one in copies:
                fp8.rounded_product(*kernels.round_rows(x), one.data, one.scale, x.dtype)

        size = COPIES * copies[0].data.nbytes / 1e6
        for tile in FLOAT_TILES:
            for one, value in zip(names, tile, strict=True):
                setattr(product_kernels, one, value)
            found[f"{name} fp8 x1, GB/s, tile {tile}"] = size / _milliseconds(alone)
        for one, value in zip(names, before, strict=True):
            setattr(product_kernels, one, value)
        found[f"{name} fp8 x1 by torch, GB/s"] = size / _milliseconds(by_torch)
        rounded, own = kernels.round_rows(torch.randn(tokens, columns, device=device).bfloat16())
        one = copies[0]
        ms = _milliseconds(
            lambda a=rounded, b=own, o=one: fp8.rounded_product(a, b, o.data, o.scale, torch.bfloat16)
        )
        found[f"{name} fp8 x{tokens}, TFLOP/s"] = 2 * tokens * rows * columns / 1e9 / ms
        wide = torch.randn(tokens, columns, device=device).bfloat16()
        found[f"{columns} numbers of {tokens} tokens rounded, us"] = 1000 * _milliseconds(
            lambda x=wide: kernels.round_rows(x)
        )
    return found


def with_arena(size: int) -> tuple[Any, str, Any]:
    """A patch: a pot's graphs begin with one block, which is cut into tensors of all sizes."""
    plain = Graphs.capture_graph

    def capture_graph(self: Graphs, compute: Any) -> Any:
        def begun() -> Any:
            torch.empty(size, dtype=torch.uint8, device="cuda")  # freed at once: the pool keeps it
            return compute()

        return plain(self, compute if self.pot is None or self.captured else begun)

    return Graphs, "capture_graph", capture_graph


def drawn(rows: int, columns: int, bits: int, device: torch.device) -> Grouped:
    """A random weight in groups."""
    groups = columns // 64
    scale = torch.rand(groups, rows, device=device).half() * 0.01
    if bits == 4:
        data = torch.randint(0, 255, (groups, rows, 32), device=device, dtype=torch.uint8)
        return Grouped(data, scale, scale.clone(), 64)
    return Grouped(
        torch.randint(-127, 127, (groups, rows, 64), device=device, dtype=torch.int8), scale, None, 64
    )


def held(weight: Grouped) -> int:
    """Bytes of a weight."""
    return sum(x.nbytes for x in (weight.data, weight.scale, weight.least) if x is not None)


def times(device: torch.device) -> dict[str, Any]:
    """Microseconds, and GB/s where memory is the limit."""
    found: dict[str, Any] = {}
    for name, (rows, columns) in WEIGHTS.items():
        for bits in (4, 8):
            copies = [drawn(rows, columns, bits, device) for _ in range(COPIES)]
            for many in (4, 64) if name == "gate and up" else (4,):  # one token: `card_units`
                x = torch.randn(many, columns, device=device).bfloat16()

                def run(x: torch.Tensor = x, copies: list[Grouped] = copies) -> None:
                    for one in copies:
                        kernels.product(x, one.data, one.scale, one.least, one.group)

                title = f"{name} int{bits} x{many}"
                ms, tile = _best(title, run, found)
                found[f"{title}, GB/s at best {tile}"] = held(copies[0]) / ms / 1e6
            wide = torch.empty(rows, columns, device=device, dtype=torch.bfloat16)
            one = copies[0]
            ms = _milliseconds(lambda o=one, w=wide: kernels.unpack(o.data, o.scale, o.least, o.group, 0, w))
            found[f"{name} int{bits} unpacked, GB/s"] = (held(one) + wide.nbytes) / ms / 1e6
    return {**found, **_attention(device)}


def _attention(device: torch.device, heads: int = 32, kv_heads: int = 8, dim: int = 128) -> dict[str, Any]:
    """One new token for each of 64 pots: GB/s of what a layer holds."""
    rotation = Rotation(500000.0 ** (-torch.arange(0, dim, 2, device=device) / dim), 2 * SLOTS)
    length = torch.full((DOCUMENTS,), SLOTS - 2, device=device)
    query = torch.randn(DOCUMENTS, heads, 1, dim, device=device).bfloat16()
    new = torch.randn(DOCUMENTS, kv_heads, 1, dim, device=device).bfloat16()
    entries = torch.randn(1, kv_heads, SLOTS - 2, dim, device=device).bfloat16()
    layers = [
        RoundedLayer(SLOTS, rotation, torch.zeros(kv_heads, dim, device=device)) for _ in range(DOCUMENTS)
    ]
    for one in layers:
        one.append(entries, entries)
    at = torch.tensor([one.addresses for one in layers], device=device).T.contiguous()
    turn = (rotation.cos, rotation.sin)
    found: dict[str, Any] = {}
    size = sum(x.nbytes for one in layers for x in one.tensors()[:4])
    before = rounded_attention_kernels.AT_ONCE, rounded_attention_kernels.STAGES
    for tile in ((32, 2), (32, 3), (64, 1), (64, 2), (64, 3), (128, 1), (128, 2)):
        rounded_attention_kernels.AT_ONCE, rounded_attention_kernels.STAGES = tile
        ms = _milliseconds(lambda: kernels.attend_rounded(query, new, new, at, *turn, length, SLOTS, 0.1))
        found[f"attention, 64 pots of 8 bits, GB/s, tile {tile}"] = size / ms / 1e6
    rounded_attention_kernels.AT_ONCE, rounded_attention_kernels.STAGES = before
    wide = [torch.randn(1, kv_heads, SLOTS, dim, device=device).bfloat16() for _ in range(2 * DOCUMENTS)]
    keys, values = (
        torch.tensor([x.data_ptr() for x in part], device=device) for part in (wide[::2], wide[1::2])
    )
    sixteen = _milliseconds(
        lambda: attention_kernels.attend_rows(query, new, new, keys, values, length, SLOTS, 0.1)
    )
    found["attention, 64 pots of 16 bits, GB/s"] = sum(x.nbytes for x in wide) / sixteen / 1e6
    return found
