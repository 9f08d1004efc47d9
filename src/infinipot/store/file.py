"""A state as one safetensors file, exact or in int8: written in one pass, checked while it is read.

Only tensors and JSON are ever read; nothing in a file is code. Each tensor is read straight into its own
memory and hashed on the way, so a pot is never there twice. Knows streams, not folders.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import BinaryIO

import torch
from torch import Tensor

from infinipot.core.state import State
from infinipot.store import header as headers
from infinipot.store.card import Card
from infinipot.store.header import SCALE, Header, Place

DTYPES = {
    "F64": torch.float64,
    "I64": torch.int64,
    "F32": torch.float32,
    "I32": torch.int32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
}
_NAMES = {dtype: name for name, dtype in DTYPES.items()}
_PACKED = ("keys", "values", "anchors")  # the last part of the names of what int8 may round
_BLOCK = 4 * 2**20  # bytes read, hashed or written at once


def write(stream: BinaryIO, state: State, card: Card) -> Card:
    """Write a state as its card's encoding says; return the card as it was written."""
    tensors, packed = _pack(state.tensors) if card.encoding == "int8" else (state.tensors, {})
    places = headers.laid_out(
        [Place(name, _NAMES[tensor.dtype], tuple(tensor.shape)) for name, tensor in tensors.items()]
    )
    card = replace(card, bytes=sum(place.size for place in places))
    header = Header(card, state.numbers, packed, places)
    digest = header.digest()
    for place in places:
        digest.update(headers.mark(place))
        digest.update(_bytes(tensors[place.name]))
    stream.write(replace(header, sha256=digest.hexdigest()).encoded())
    for place in places:
        for block in _blocks(_bytes(tensors[place.name])):
            stream.write(block)
    return card


def read(stream: BinaryIO, size: int, what: str) -> tuple[State, Card]:
    """Read a whole file of `size` bytes; `what` names the pot in an error."""
    header = headers.read(stream, size, what)
    tensors, digest = {}, header.digest()
    for place in header.places:
        tensor = torch.empty(place.shape, dtype=DTYPES[place.dtype])
        digest.update(headers.mark(place))
        for block in _blocks(_bytes(tensor)):
            _fill(stream, block, what)
            digest.update(block)
        tensors[place.name] = tensor
    _compare(digest.hexdigest(), header, what)
    return State(_unpack(tensors, header.packed), header.numbers), header.card


def check(stream: BinaryIO, size: int, what: str) -> Card:
    """Read a whole file and keep nothing of it but its card."""
    header = headers.read(stream, size, what)
    digest, space = header.digest(), bytearray(_BLOCK)
    for place in header.places:
        digest.update(headers.mark(place))
        for start in range(0, place.size, _BLOCK):
            block = memoryview(space)[: min(_BLOCK, place.size - start)]
            _fill(stream, block, what)
            digest.update(block)
    _compare(digest.hexdigest(), header, what)
    return header.card


def _compare(found: str, header: Header, what: str) -> None:
    if found != header.sha256:
        raise headers.damaged(what, "its checksum is wrong")


def _fill(stream: BinaryIO, block: memoryview, what: str) -> None:
    """Read until the block is full."""
    done = 0
    while done < len(block):
        count = stream.readinto(block[done:])  # type: ignore[attr-defined]  # every stream we open has it
        if not count:
            raise headers.damaged(what, "it is cut short")
        done += count


def _bytes(tensor: Tensor) -> memoryview:
    """The tensor's memory, of a copy where it is not in one piece or not here."""
    flat = tensor.detach().cpu().contiguous().view(-1)
    return flat.view(torch.uint8).numpy().data


def _blocks(whole: memoryview) -> Iterator[memoryview]:
    return (whole[start : start + _BLOCK] for start in range(0, len(whole), _BLOCK))


def _pack(tensors: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Round rows of keys and values to int8, each with a scale of its own; everything else stays exact."""
    found, packed = {}, {}
    for name, tensor in tensors.items():
        if name.rpartition(".")[2] not in _PACKED or not tensor.is_floating_point():
            found[name] = tensor
            continue
        wide = tensor.float()
        scale = wide.abs().amax(-1, keepdim=True) / 127  # [..., S, 1]
        tiny = torch.finfo(scale.dtype).tiny
        found[name] = (wide / scale.clamp(min=tiny)).round().to(torch.int8)
        found[name + SCALE] = scale
        packed[name] = _NAMES[tensor.dtype]
    return found, packed


def _unpack(tensors: dict[str, Tensor], packed: Mapping[str, str]) -> dict[str, Tensor]:
    """Undo `_pack`, but for the rounding; the header has seen to it that shapes fit."""
    for name, dtype in packed.items():
        tensors[name] = (tensors[name] * tensors.pop(name + SCALE)).to(DTYPES[dtype])
    return tensors
