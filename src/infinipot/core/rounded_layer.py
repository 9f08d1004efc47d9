"""A pot layer in 8 bits: less than half the bytes of one in the model's own type.

Keys lie at position 0 (`rounding`), so a slot that moves is copied as it is and needs no anchor. What a
forward attends to is made in the model's type when it is asked for, in one buffer that all layers share; new
entries are attended to as they are, and rounded for later. Knows no model, text or policy.
"""

import threading
from typing import Any, ClassVar
from weakref import WeakValueDictionary

import torch
from torch import Tensor

from infinipot.core.columns import ROUNDED, Column, pick
from infinipot.core.cuda.dispatch import kernels
from infinipot.core.pot_layer import PotLayer
from infinipot.core.rope import Rotation
from infinipot.core.rounding import rounded, rounded_keys, wide_keys
from infinipot.core.state import State


class Buffer:
    """Keys and values [B, Hkv, S, D] of one layer as attention reads them."""

    def __init__(self, keys: Tensor, values: Tensor, slots: int) -> None:
        self.keys = keys.new_empty(*keys.shape[:2], slots, keys.shape[-1])
        self.values = values.new_empty(*values.shape[:2], slots, values.shape[-1])


_BUFFERS: WeakValueDictionary[Any, Buffer] = WeakValueDictionary()


def buffer(keys: Tensor, values: Tensor, slots: int) -> Buffer:
    """Return the buffer for layers of this shape: one for all of them, whatever their pot.

    Threads of a CPU have their own; on a device what its stream is given comes one after the other, and a
    captured graph finds the buffer where it was.
    """
    thread = threading.get_ident() if keys.device.type == "cpu" else 0
    key = (thread, keys.device, keys.dtype, *keys.shape[:2], slots, keys.shape[-1], values.shape[-1])
    found = _BUFFERS.get(key)
    if found is None:
        found = _BUFFERS[key] = Buffer(keys, values, slots)
    return found


class RoundedLayer(PotLayer):
    """The slots of one layer in 8 bits; positions are always reset, and memory is always bounded.

    offset [Hkv, D] is what keys at position 0 have in common; the layer has a copy of its own, which is
    saved with its slots, and a file's may be another than the model's.
    """

    columns: ClassVar[tuple[Column, ...]] = ROUNDED

    def __init__(self, capacity: int, rotation: Rotation, offset: Tensor) -> None:
        super().__init__(capacity, 0, rotation)
        self._model_offset, self.offset = offset, offset.float().clone()
        self.key_scale = self.value_scale = torch.empty(0)
        self.buffer: Buffer | None = None  # kept alive for captured graphs

    def append(self, keys: Tensor, values: Tensor, turn: list[Tensor] | None = None) -> tuple[Tensor, Tensor]:
        """Write new entries [B, Hkv, n, D] after the last slot; return all of them, for use at once."""
        begin, end = self.fill, self.fill + keys.shape[2]
        super().append(keys, values, turn)
        seen = self._opened(keys, values)
        if not self._fast(keys, values):
            self._widen(seen, begin)
            seen.keys[:, :, begin:end] = keys
            seen.values[:, :, begin:end] = values
        return seen.keys[:, :, :end], seen.values[:, :, :end]

    def _opened(self, keys: Tensor, values: Tensor) -> Buffer:
        self.buffer = buffer(keys, values, self.capacity)
        return self.buffer

    def _fast(self, keys: Tensor, values: Tensor) -> Any:
        """The kernels, where they know these shapes and types."""
        fast = kernels(keys.device)
        whole = self.rotation.width == keys.shape[-1] and values.shape == keys.shape
        return fast if fast and whole and fast.serves(keys, keys) else None

    def _write(self, keys: Tensor, values: Tensor, end: int, turn: list[Tensor] | None) -> None:
        assert turn is None  # keys are turned back from where they lie
        if fast := self._fast(keys, values):
            seen, by = self._opened(keys, values), self.rotation
            fast.widen(self.tensors(), self.offset, by.cos, by.sin, seen.keys, seen.values, self.fill)
            into = (self.tensors(), self.offset, by.cos, by.sin, seen.keys, seen.values)
            fast.append_rounded(keys, values, *into, self.dropped, self.fill)
            return
        here = slice(self.fill, end)
        found = rounded_keys(keys, self.offset, *self._angles(here))
        self.keys[:, :, here], self.key_scale[:, :, here] = found
        self.values[:, :, here], self.value_scale[:, :, here] = rounded(values)
        self._number(end)

    def _angles(self, slots: slice) -> tuple[Tensor, Tensor]:
        return self.rotation.on(self.keys.device)[0][slots], self.rotation.on(self.keys.device)[1][slots]

    def _widen(self, into: Buffer, end: int) -> None:
        """Put the first `end` slots into a buffer, each key at its slot's position."""
        held = self.keys[:, :, :end], self.key_scale[:, :, :end], self.offset
        wide_keys(into.keys[:, :, :end], *held, *self._angles(slice(0, end)))
        into.values[:, :, :end] = self.values[:, :, :end] * self.value_scale[:, :, :end, None]

    def write_at(self, place: Tensor, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Write one entry [1, Hkv, 1, D] at place [1], uncounted; return the keys and values of all slots."""
        cos, sin = (table[place] for table in self.rotation.on(keys.device))
        found, scale = rounded_keys(keys, self.offset, cos, sin)
        self.keys.index_copy_(2, place, found)
        self.key_scale.index_copy_(2, place, scale)
        found, scale = rounded(values)
        self.values.index_copy_(2, place, found)
        self.value_scale.index_copy_(2, place, scale)
        seen = self._opened(keys, values)
        self._widen(seen, self.capacity)
        seen.keys.index_copy_(2, place, keys)
        seen.values.index_copy_(2, place, values)
        return seen.keys, seen.values

    @property
    def by_address(self) -> bool:
        """Say whether kernels can write and read the layer where its `addresses` say it lies."""
        return self.buffer is not None and bool(self._fast(self.buffer.keys, self.buffer.values))

    @property
    def addresses(self) -> list[int]:
        """Where the buffers lie that a new token is written to and attends to."""
        held = (self.keys, self.values, self.key_scale, self.value_scale, self.offset)
        return [tensor.data_ptr() for tensor in held]

    def keep(self, slots: Tensor) -> None:
        """Keep the slots [B, Hkv, n] (sorted) and nothing else: rows of every column, as they are."""
        count = slots.shape[-1]
        for column in self.columns:
            held = getattr(self, column.name)
            held[:, :, :count] = pick(held, slots) if column.like else held.gather(2, slots)
        self.dropped += self.fill - count
        self.fill = count
        self.catalyst, self.last = None, None if self.last is None else self.last.gather(2, slots)

    def _empty(self, capacity: int) -> PotLayer:
        return RoundedLayer(capacity, self.rotation, self._model_offset)

    def clear(self) -> None:
        """Forget every entry, and what a file said of all of them; the memory stays."""
        super().clear()
        self.offset.copy_(self._model_offset)
        for scale in (self.key_scale, self.value_scale):  # an absurd one would make an empty slot no number
            scale.zero_()

    def restore(self, other: PotLayer) -> None:
        """Take over another layer's content without moving in memory."""
        assert isinstance(other, RoundedLayer)
        self.offset.copy_(other.offset)
        super().restore(other)

    def state(self) -> State:
        """Return its content: views, as long as they are filled."""
        found = super().state()
        return State({**found.tensors, "offset": self.offset}, found.numbers)

    def load(self, state: State, device: torch.device) -> None:
        """Take over a state without moving in memory; it must fit this layer."""
        self.offset.copy_(state.tensor("offset", self.offset, *self.offset.shape))
        super().load(state, device)
