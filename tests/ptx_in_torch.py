"""The few PTX instructions of our kernels' inline assembly, on registers of 32 bits held as int32 tensors."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

Kinds = tuple[torch.dtype, ...]


def _halves(word: Tensor) -> Tensor:
    return word[..., None].contiguous().view(torch.float16).float()


def _packed(halves: Tensor) -> Tensor:
    return halves.half().view(torch.int32)[..., 0]


def _bytes_chosen(a: Tensor, b: Tensor, selector: Tensor) -> Tensor:
    """`prmt`: bytes 0 to 3 are those of a, 4 to 7 those of b."""
    shape = (a | b).shape
    held = torch.stack((a.expand(shape), b.expand(shape)), -1).view(torch.uint8)
    places = [int(selector) >> 4 * place & 7 for place in range(4)]
    return held[..., places].contiguous().view(torch.int32)[..., 0]


def _by_table(a: Tensor, b: Tensor, c: Tensor, table: Tensor) -> Tensor:
    """`lop3`: bit 4 a + 2 b + c of the table, for every bit."""
    found = torch.zeros_like(a | b | c)
    for row in range(8):
        if int(table) >> row & 1:
            found = found | ((a if row & 4 else ~a) & (b if row & 2 else ~b) & (c if row & 1 else ~c))
    return found


DOES: dict[str, Callable[..., Tensor]] = {
    "mov.b32": lambda a: a,
    "xor.b32": lambda a, b: a ^ b,
    "and.b32": lambda a, b: a & b,
    "shr.b32": lambda a, n: (a >> n) & ((1 << 32 - n) - 1),
    "prmt.b32": _bytes_chosen,
    "lop3.b32": _by_table,
    "neg.f16x2": lambda a: _packed(-_halves(a)),
    "sub.rn.f16x2": lambda a, b: _packed(_halves(a) - _halves(b)),
    "mul.rn.f16x2": lambda a, b: _packed(_halves(a) * _halves(b)),
    "fma.rn.f16x2": lambda a, b, c: _packed(_halves(a) * _halves(b) + _halves(c)),
}


def _literal(text: str) -> Tensor:
    value = int(text, 0)
    return torch.tensor(value - (value >> 31 << 32), dtype=torch.int32)


def inline_asm(text: str, given: list[Tensor], kinds: Kinds, pack: int) -> list[Tensor]:
    """Run the instructions on every `pack` neighbours of the last axis; return a tensor for each kind."""
    shape = np.broadcast_shapes(*(one.shape for one in given))
    sizes = [pack * kind.itemsize // 4 for kind in kinds]
    held: dict[str, Any] = {}
    at = sum(sizes)
    for one in given:
        words = one.expand(shape).contiguous().view(torch.int32)
        for word in words.view(*shape[:-1], -1, pack * one.itemsize // 4).unbind(-1):
            held[f"${at}"], at = word, at + 1
    for line in re.sub(r"[{}\n]", " ", text).split(";"):
        name, _, operands = line.strip().partition(" ")
        if name and name != ".reg":
            to, *names = (one.strip() for one in operands.split(","))
            held[to] = DOES[name](*(held[one] if one in held else _literal(one) for one in names))
    made = iter(held[f"${place}"] for place in range(sum(sizes)))
    outs = (torch.stack([next(made) for _ in range(size)], -1).flatten(-2) for size in sizes)
    return [one.view(kind) for one, kind in zip(outs, kinds, strict=True)]
