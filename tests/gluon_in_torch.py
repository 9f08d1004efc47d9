"""Gluon kernels run by plain torch, one program after the other: what they compute, not how lanes share it.

Layouts are ignored, so the order in which a card's lanes hold things is not seen here. Reading or writing
outside of a tensor is an error.
"""

from __future__ import annotations

from itertools import product
from types import FunctionType, ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from triton.language.core import constexpr

from ptx_in_torch import inline_asm

_MEMORY: dict[int, Tensor] = {}
_PROGRAM = [0, 0]


class Block(Tensor):
    """A kernel's tensor."""

    type = SimpleNamespace(layout=None)  # type: ignore[assignment]  # torch's own is a method

    def to(self, kind: Any, bitcast: bool = False) -> Any:  # type: ignore[override]
        if kind == "pointer":
            return Pointer(_MEMORY[int(self)])
        return self.contiguous().view(kind) if bitcast else super().to(kind)


def _block(x: Any) -> Block:
    return torch.as_tensor(x).as_subclass(Block)


class Pointer:
    """Places in a tensor."""

    def __init__(self, memory: Tensor, at: Any = 0) -> None:
        self.memory, self.at = memory.view(-1), at
        self.dtype = SimpleNamespace(element_ty=memory.dtype)

    def __add__(self, more: Any) -> Pointer:
        return Pointer(self.memory, self.at + more)

    def places(self, mask: Any) -> tuple[Tensor, Tensor]:
        at, known = torch.as_tensor(self.at), torch.as_tensor(mask)
        shape = np.broadcast_shapes(at.shape, known.shape)
        at, known = at.expand(shape), known.expand(shape)
        assert bool(((at >= 0) & (at < len(self.memory)))[known].all()), "outside of the tensor"
        return at, known


def _load(at: Pointer, mask: Any = True, other: float = 0) -> Block:
    where, known = at.places(mask)
    return _block(torch.where(known, at.memory[torch.where(known, where, 0)], other).to(at.memory.dtype))


def _store(at: Pointer, value: Any, mask: Any = True) -> None:
    where, known = at.places(mask)
    at.memory[where[known]] = torch.broadcast_to(value, where.shape)[known].to(at.memory.dtype)


def _asm(text: str, _: str, given: list[Tensor], dtype: Any, is_pure: bool, pack: int) -> Any:
    if "movmatrix" in text:  # the only one in which lanes give each other something
        return given[0].view(2, 8, 8).transpose(1, 2).reshape(16, 8)
    kinds = dtype if isinstance(dtype, tuple) else (dtype,)
    found = [_block(one) for one in inline_asm(text, given, kinds, pack)]
    return tuple(found) if isinstance(dtype, tuple) else found[0]


class _Shared:
    """Shared memory; a copy into it arrives at once."""

    def __init__(self, held: Tensor) -> None:
        self.held = held

    def index(self, at: int) -> _Shared:
        return _Shared(self.held[at])

    def load(self, _: Any) -> Block:
        return _block(self.held.clone())


def _nothing(*_: Any) -> None:
    return None


KINDS = ("float32", "float16", "bfloat16", "int8", "int16", "int32", "int64")
LAYOUTS = (
    "SliceLayout", "DotOperandLayout", "NVMMADistributedLayout", "SwizzledSharedLayout",
    "DistributedLinearLayout", "BlockedLayout",
)  # fmt: skip
GL = SimpleNamespace(
    **{kind: getattr(torch, kind) for kind in KINDS}, **dict.fromkeys(LAYOUTS, _nothing),
    pointer_type=lambda _: "pointer",
    program_id=lambda axis: _block(_PROGRAM[axis]), multiple_of=lambda x, _: x, static_range=range,
    arange=lambda first, end, _: _block(torch.arange(first, end)),
    zeros=lambda shape, kind, _: _block(torch.zeros(shape, dtype=kind)), zeros_like=torch.zeros_like,
    full=lambda shape, value, kind, _: _block(torch.full(shape, value, dtype=kind)),
    minimum=lambda a, b: torch.minimum(_block(a), _block(b)),
    maximum=lambda a, b: torch.maximum(a, torch.as_tensor(b, dtype=a.dtype)),
    where=torch.where, abs=torch.abs, floor=torch.floor, exp=torch.exp, exp2=torch.exp2,
    max=lambda x, axis: x.amax(axis), sum=lambda x, axis: x.sum(axis),
    join=lambda a, b: torch.stack((a, b), -1), split=lambda x: x.unbind(-1),
    convert_layout=lambda x, _, assert_trivial: x, load=_load, store=_store, inline_asm_elementwise=_asm,
    allocate_shared_memory=lambda kind, shape, _: _Shared(torch.zeros(shape, dtype=kind)),
)  # fmt: skip
COPIES = SimpleNamespace(
    async_copy_global_to_shared=lambda to, at: to.held.copy_(_load(at)),
    commit_group=_nothing, wait_group=_nothing,
)  # fmt: skip


def kernel(module: ModuleType, name: str, memory: Any = ()) -> Any:
    """A kernel of a module to be launched as any is; tensors of `memory` may be pointed to by address."""
    names: dict[str, Any] = {}
    for own, value in vars(module).items():
        plain = getattr(value, "fn", None)
        names[own] = FunctionType(plain.__code__, names) if isinstance(plain, FunctionType) else value
        names[own] = value.value if isinstance(value, constexpr) else names[own]
    names |= {"gl": GL, "async_copy": COPIES, "mma_v2": lambda a, b, c: c + a.float() @ b.float()}
    return _Launched(names[name], list(memory))


class _Launched:
    def __init__(self, body: Any, memory: list[Tensor]) -> None:
        self.body, self.memory = body, memory

    def __getitem__(self, grid: tuple[int, ...]) -> Any:
        def launch(*given: Any, num_warps: int, maxnreg: int = 0, **constants: Any) -> None:
            _MEMORY.update((one.data_ptr(), one) for one in self.memory)
            for _PROGRAM[:] in product(*map(range, (*grid, 1)[:2])):
                self.body(*(self._taken(one) for one in given), **constants)
            _MEMORY.clear()

        return launch

    @staticmethod
    def _taken(one: Any) -> Any:
        return Pointer(one) if isinstance(one, Tensor) else _block(one) if isinstance(one, int) else one
