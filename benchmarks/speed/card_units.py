"""Kernels that decoding spends its time in, each in several forms: right, and how near to a copy's speed.

Every form is checked against plain torch first and told as soon as it is known; one that cannot be compiled
stops no other. Times are of captured graphs that go through more memory than the cache holds.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from infinipot.core.attention import attend_fixed
from infinipot.core.cuda import (
    attention_kernels,
    kernels,
    unit_attention_kernels,
    unit_product_kernels,
)
from infinipot.core.rope import Rotation
from infinipot.core.rounded_layer import RoundedLayer
from infinipot.hf.cuda.grouped import Grouped
from speed.card_kernels import drawn, held

Found = dict[str, Any]
SHAPES = {
    "gate and up": (28672, 4096, 4),
    "down": (4096, 14336, 4),
    "qkv": (6144, 4096, 4),
    "o": (4096, 4096, 4),
    "head": (128256, 4096, 8),
}
"""Rows, columns and bits of an 8B shape's weights."""
WIDE = (
    (4, 2, True, 168, 64), (4, 4, False, None, 128), (4, 4, True, None, 64), (2, 4, True, None, 64),
    (4, 4, False, 168, 64), (2, 2, True, 168, 64), (8, 2, True, 168, 64), (2, 4, False, None, 128),
)  # fmt: skip
FORMS = {
    "gate and up": WIDE,
    "down": (
        (8, 1, True, 128, 64), (8, 1, False, 128, 128), (4, 1, True, None, 64), (8, 1, True, 128, 128),
        (8, 2, True, 168, 64), (4, 1, True, 168, 128),
    ),
    "qkv": (
        (4, 1, True, None, 64), (4, 1, False, 128, 128), (4, 1, True, 128, 128), (8, 1, True, 128, 64),
        (4, 2, True, 168, 64), (2, 1, True, 128, 64),
    ),
    "o": (
        (4, 1, True, None, 64), (4, 1, True, 168, 128), (8, 1, False, 128, 128), (8, 1, True, 128, 64),
    ),
    "head": ((2, 2, True, None, 128), (2, 2, True, 168, 64), (4, 1, True, 128, 64), (4, 2, True, 168, 64)),
}  # fmt: skip
"""Warps of a program, tiles of 16 rows, whether it reads ahead, registers at most, pairs of bytes at once."""
PIECES, PIECES_ALONE = (256, 512, 1024, 2048), (64, 128)
"""Slots of a program that attends to 8 bits; the same for one pot."""
BEYOND_CACHE = 250e6  # bytes that a graph goes through at least


class Table:
    """What was found, until time is up."""

    def __init__(self, seconds: float) -> None:
        self.end, self.rows = time.perf_counter() + seconds, []  # type: ignore[var-annotated]

    def add(self, what: str, form: Any, run: Callable[[], Any], size: float, calls: int, right: Any) -> None:
        """Check and time one form: microseconds of a call, GB/s of the bytes it must read, error."""
        if time.perf_counter() > self.end:
            return
        try:
            error = float(right())
            from triton.testing import do_bench_cudagraph

            us = 1000 * float(do_bench_cudagraph(run, rep=10)) / calls
            row = (what, us, f"{us:9.2f} us {size / us / 1e3:7.0f} GB/s, error {error:.5f}  {form}")
        except Exception as failed:  # too many registers, a Triton without it
            row = (what, float("inf"), f"failed: {form}: {type(failed).__name__}: {failed}"[:300])
        self.rows.append(row)
        print(f"{what:<26} {row[2]}", flush=True)

    def found(self) -> Found:
        """All rows, those of one thing together, the fastest first."""
        ordered = sorted(self.rows, key=lambda row: (row[0], row[1]))
        return {f"{what} {rank:02}": text for rank, (what, _, text) in enumerate(ordered)}


@contextmanager
def _set(module: Any, **values: Any) -> Iterator[None]:
    before = {name: getattr(module, name) for name in values}
    for name, value in values.items():
        setattr(module, name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(module, name, value)


def _apart(found: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
    return (found.double() - wanted.double()).norm() / wanted.double().norm()


def products(table: Table, device: torch.device, shapes: dict[str, tuple[int, int, int]] = SHAPES) -> None:
    """One token times every weight of a layer, and the head."""
    for name, (rows, columns, bits) in shapes.items():
        one = drawn(rows, columns, bits, device)
        size = held(one)
        copies = [one, *(drawn(rows, columns, bits, device) for _ in range(int(BEYOND_CACHE / size)))]
        x = torch.randn(1, columns, device=device).bfloat16()
        wanted = x.float() @ one.unpacked().T
        what = f"{name} int{bits}"

        def multiply(of: Grouped, x: torch.Tensor = x) -> torch.Tensor:
            return kernels.product(x, of.data, of.scale, of.least, of.group)  # type: ignore[no-any-return]

        def run(copies: list[Grouped] = copies, multiply: Any = multiply) -> None:
            for weight in copies:
                multiply(weight)

        def right(one: Grouped = one, wanted: torch.Tensor = wanted, multiply: Any = multiply) -> Any:
            return _apart(multiply(one), wanted)

        for form in FORMS.get(name, WIDE):
            with _set(unit_product_kernels, FORM=form):
                table.add(what, form, run, size, len(copies), right)


def attention(
    table: Table, device: torch.device, pots: int, slots: int = 4096, heads: int = 32, kv_heads: int = 8
) -> None:
    """One new token for each of several pots of 8 bits, and of 16."""
    dim, fill = 128, slots - 2
    rotation = Rotation(500000.0 ** (-torch.arange(0, dim, 2, device=device) / dim), 2 * slots)
    length, turn = torch.full((pots,), fill, device=device), (rotation.cos, rotation.sin)
    query = torch.randn(pots, heads, 1, dim, device=device).bfloat16()
    new = torch.randn(pots, kv_heads, 1, dim, device=device).bfloat16()
    offset = torch.randn(kv_heads, dim, device=device)
    layers, wide = [], []
    for _ in range(max(pots, 16)):
        layers.append(RoundedLayer(slots, rotation, offset))
        layers[-1].append(*(torch.randn(1, kv_heads, fill, dim, device=device).bfloat16() for _ in range(2)))
        wide.append(
            [torch.randn(1, kv_heads, slots, dim, device=device).bfloat16() for _ in range(2)]
            if pots == 1
            else []
        )
    some = [layers[at : at + pots] for at in range(0, len(layers), pots)]
    eight = [torch.tensor([one.addresses for one in part], device=device).T.contiguous() for part in some]
    size = fill * kv_heads * (2 * dim + 8) * pots

    def attend(at: torch.Tensor) -> torch.Tensor:
        return kernels.attend_rounded(query, new, new, at, *turn, length, slots, dim**-0.5)  # type: ignore[no-any-return]

    def right() -> Any:
        seen = [one.clone() for one in layers[0].copy().write_at(length[:1], new[:1], new[:1])]
        return _apart(
            attend(eight[0])[:1],
            attend_fixed(query[:1].double(), *(x.double() for x in seen), dim**-0.5, length[:1]),
        )

    def run() -> None:
        for at in eight:
            attend(at)

    what = f"{pots} pots of 8 bits"
    for piece in PIECES if pots > 1 else PIECES_ALONE:
        with _set(unit_attention_kernels, PIECE=piece, PROGRAMS=1):
            table.add(what, piece, run, size, len(eight), right)
    if pots > 1:
        return
    where = [[torch.tensor([x.data_ptr()], device=device) for x in pair] for pair in wide]

    def attend_wide(at: list[torch.Tensor]) -> torch.Tensor:
        return kernels.attend_rows(query, new, new, *at, length, slots, dim**-0.5)  # type: ignore[no-any-return]

    def right_wide() -> Any:
        seen = [x.clone() for x in wide[0]]
        for one in seen:
            one[:, :, fill] = new[:, :, 0]
        found = attend_wide(where[0])
        return _apart(found, attend_fixed(query.double(), *(x.double() for x in seen), dim**-0.5, length))

    for programs in (64, 128):
        with _set(attention_kernels, PROGRAMS=programs):
            table.add(
                "1 pot of 16 bits", programs, lambda: [attend_wide(at) for at in where],
                fill * kv_heads * 4 * dim, len(where), right_wide,
            )  # fmt: skip


def memory(table: Table, device: torch.device) -> None:
    """What the card's memory can do."""
    source = torch.empty(2, 2**28, dtype=torch.float32, device=device)
    copy = source[0].copy_
    table.add("memory", "read and written", lambda: copy(source[1]), source.nbytes, 1, lambda: 0.0)
    table.add("memory", "read", source.amax, source.nbytes, 1, lambda: 0.0)


def forms(device: torch.device, seconds: float = 60.0) -> Found:
    """Everything, within so many seconds."""
    table = Table(seconds)
    memory(table, device)
    attention(table, device, 64)
    products(table, device)
    attention(table, device, 1)
    return table.found()
