"""The kernels around a decoder's products against their twins in plain torch, and their times."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F

from infinipot.core.cuda import kernels, product_kernels
from infinipot.core.pot_layer import PotLayer
from infinipot.core.rope import Rotation
from infinipot.hf.cuda import fp8
from speed.card_kernels import _milliseconds

Found = dict[str, Any]
WARPS = (8, 16, 32)


class Shapes:
    """Rows and widths of an 8B model's cycle; small ones where kernels are interpreted."""

    def __init__(self, device: str) -> None:
        card = device == "cuda"
        self.device, self.kind = device, torch.bfloat16 if card else torch.float16
        self.rows, self.hidden, self.inner = (2048, 4096, 14336) if card else (20, 128, 96)
        self.heads, self.kv_heads, self.dim = (32, 8, 128) if card else (4, 2, 64)
        self.slots = 2 * self.rows

    def some(self, *shape: int) -> torch.Tensor:
        """Random numbers of the model's type."""
        return torch.randn(*shape, device=self.device).to(self.kind)


def relative(found: torch.Tensor, wanted: torch.Tensor) -> float:
    """Return the relative error."""
    return float((found.float() - wanted.float()).norm() / wanted.float().norm())


def wide(rounded: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    """Rows in 8-bit floats, in float32."""
    return rounded[0].float() * rounded[1]


def turned(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Heads [..., n, D] by RoPE in plain torch."""
    a, b = x.float().chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1).to(x.dtype)


def checks(shapes: Shapes) -> Iterator[tuple[str, float, Callable[[], Any]]]:
    """Yield each kernel's name, its relative error against its twin, and a call to time."""
    x, more, weight = (
        shapes.some(*size) for size in ((shapes.rows, shapes.hidden),) * 2 + ((shapes.hidden,),)
    )
    total = x + more
    normed = F.rms_norm(total.float(), (shapes.hidden,), weight.float(), 1e-5).to(shapes.kind)
    found = kernels.add_norm(x, more, weight, 1e-5, False)
    yield (
        "add_norm",
        max(relative(found[0], total), relative(found[1], normed)),
        lambda: kernels.add_norm(x, more, weight, 1e-5, False),
    )
    found = kernels.add_norm(x, more, weight, 1e-5, False, True)[1]
    yield (
        "add_norm, rounded",
        relative(wide(found), wide(fp8.rounded_rows(normed))),
        lambda: kernels.add_norm(x, more, weight, 1e-5, False, True),
    )
    yield (
        "round_rows",
        relative(wide(kernels.round_rows(x)), wide(fp8.rounded_rows(x))),
        lambda: kernels.round_rows(x),
    )
    both = shapes.some(shapes.rows, 2 * shapes.inner)
    gated = F.silu(both[:, : shapes.inner].float()) * both[:, shapes.inner :].float()
    new, old = (shapes.some(1, shapes.rows, shapes.heads, shapes.dim).transpose(1, 2) for _ in range(2))
    sums = torch.randn(2, 1, shapes.heads, shapes.rows, device=shapes.device)
    merged = kernels.merge(new.clone(), old, *sums).transpose(1, 2).reshape(shapes.rows, -1)
    yield (
        "merge_rounded",
        relative(wide(kernels.merge_rounded(new, old, *sums)), wide(fp8.rounded_rows(merged))),
        lambda: kernels.merge_rounded(new, old, *sums),
    )
    yield "gated", relative(kernels.gated(both), gated), lambda: kernels.gated(both)
    for warps in WARPS:
        product_kernels.MOST_WARPS = warps
        error = relative(wide(kernels.gated(both, True)), wide(fp8.rounded_rows(gated)))
        yield f"gated, rounded, {warps} warps", error, lambda: kernels.gated(both, True)
    product_kernels.MOST_WARPS = 16
    yield from _heads(shapes)


def _heads(shapes: Shapes) -> Iterator[tuple[str, float, Callable[[], Any]]]:
    """The kernels of RoPE."""
    places = torch.arange(shapes.slots - shapes.rows, shapes.slots, device=shapes.device)
    frequencies = 5e5 ** (-torch.arange(0, shapes.dim, 2, device=shapes.device).float() / shapes.dim)
    angle = places[:, None].float() * frequencies
    cos, sin = kernels.angles_at(places, frequencies, 1.0, shapes.kind)
    error = max(float((cos - angle.cos()).abs().max()), float((sin - angle.sin()).abs().max()))
    yield (
        "angles_at (largest difference)",
        error,
        lambda: kernels.angles_at(places, frequencies, 1.0, shapes.kind),
    )
    sizes = [shapes.heads, shapes.kv_heads, shapes.kv_heads]
    rows = shapes.some(1, shapes.rows, sum(sizes), shapes.dim)
    queries, keys, values = (x.clone() for x in torch.split(rows.transpose(1, 2), sizes, dim=1))
    wanted = turned(queries, cos.float(), sin.float()), turned(keys, cos.float(), sin.float()), values
    apart = kernels.apart(rows.view(shapes.rows, -1), cos, sin, shapes.kv_heads, False)
    error = max(relative(a, b[0].transpose(0, 1)) for a, b in zip(apart, wanted, strict=True))
    yield "apart", error, lambda: kernels.apart(rows.view(shapes.rows, -1), cos, sin, shapes.kv_heads, False)
    layer = PotLayer(shapes.slots, shapes.rows, Rotation(frequencies, shapes.slots))
    layer._allocate(keys, values)
    into = [layer.keys, layer.values, layer.source, layer.novelty, layer.running]
    views = torch.split(rows.transpose(1, 2), sizes, dim=1)
    kernels.append(views[1], views[2], into, layer.dropped, 7, [views[0], cos, sin])
    held = [x[:, :, 7 : 7 + shapes.rows] for x in into[:2]]
    error = max(relative(a, b) for a, b in zip((views[0], *held), wanted, strict=True))
    error += float((layer.source[0, 0, 7 : 7 + shapes.rows] != places - places[0] + 7).any())
    yield (
        "append, turned",
        error,
        lambda: kernels.append(views[1], views[2], into, layer.dropped, 7, [views[0], cos, sin]),
    )


def single_calls(shapes: Shapes) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Calls of torch's that may launch more than one kernel."""
    x, weight = shapes.some(shapes.rows, shapes.hidden), shapes.some(shapes.hidden, shapes.hidden)
    held, own = fp8.rounded_weight([weight], weight.device), fp8.rounded_rows(x)
    yield "a product of 8-bit floats", lambda: fp8.rounded_product(*own, held.data, held.scale, shapes.kind)
    yield "a product", lambda: F.linear(x, weight)
    q = shapes.some(1, shapes.rows, shapes.heads, shapes.dim).transpose(1, 2)
    k = shapes.some(1, shapes.kv_heads, shapes.rows, shapes.dim)
    attend = torch.ops.aten._scaled_dot_product_cudnn_attention
    for causal in (True, False):
        yield (
            f"cuDNN's attention, causal {causal}",
            lambda causal=causal: attend(q, k, k, None, True, 0.0, causal, False, scale=0.1),
        )


def kernel_times(setting: Any, _: str) -> Iterator[Found]:
    """Compile and check all kernels; then time them, and count what single calls of torch's launch."""
    shapes = Shapes(setting.device)
    done = list[tuple[str, float, Callable[[], Any]]]()
    failed: Found = {}
    try:
        for name, error, run in checks(shapes):
            done.append((name, error, run))
            print(f"{name}: error {error:.5f}", flush=True)
    except Exception as problem:  # said, and what was found before is timed
        failed = {
            "failed after " + (done[-1][0] if done else "nothing"): f"{type(problem).__name__}: {problem}"[
                :300
            ]
        }
    yield {**failed, **{f"error, {name}": error for name, error, _ in done}}
    if setting.device != "cuda":
        return
    for name, _, run in done:
        for warps in WARPS:
            product_kernels.MOST_WARPS = warps if f" {warps} warps" in name else product_kernels.MOST_WARPS
        yield {f"us, {name}": 1000 * _milliseconds(run)}
        product_kernels.MOST_WARPS = 16
    from torch.profiler import ProfilerActivity, profile

    for name, run in single_calls(shapes):
        run()
        torch.cuda.synchronize()
        with profile(activities=[ProfilerActivity.CUDA]) as seen:
            run()
            torch.cuda.synchronize()
        yield {f"launches, {name}": {one.key[:60]: one.count for one in seen.key_averages()}}
