"""The head of a pot's file: a safetensors header, read with suspicion. No tensors, no torch.

    8 bytes         length of the header, little-endian
    JSON            {"__metadata__": {"infinipot": DOCUMENT}, NAME: {"dtype", "shape", "data_offsets"}, ...}
    tensors         one after the other, the widest dtype first, then by name

DOCUMENT is JSON too: the card, the state's numbers, which tensors are packed, and a SHA-256 over all of
that and over every tensor's name, dtype, shape and bytes. Any safetensors reader opens such a file; this
one also refuses what a file of ours never has: gaps, overlaps, another order, bytes after the end.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO, NoReturn

from infinipot.errors import StoreError
from infinipot.store.card import Card

if TYPE_CHECKING:
    from hashlib import _Hash

WIDTHS = {"F64": 8, "I64": 8, "F32": 4, "I32": 4, "F16": 2, "BF16": 2, "I16": 2, "I8": 1, "U8": 1}  # bytes
FLOATS = ("F64", "F32", "F16", "BF16")
SCALE = ".scale"  # after the name of a tensor in int8
MOST = 4 * 2**20  # bytes of a header: real pots have some hundred thousand; parsed it takes 20 times as many
_LENGTH = 8
_OURS = "infinipot"
_PARTS = {"card", "numbers", "packed", "sha256"}


@dataclass(frozen=True)
class Place:
    """Where one tensor lies, from the end of the header on."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    start: int = 0

    @property
    def size(self) -> int:
        """Bytes of the tensor."""
        return math.prod(self.shape) * WIDTHS[self.dtype]

    @property
    def order(self) -> tuple[int, str]:
        """What tensors are sorted by: so each is aligned to its own width."""
        return -WIDTHS[self.dtype], self.name


@dataclass(frozen=True)
class Header:
    """All of a pot's file but its tensors."""

    card: Card
    numbers: Mapping[str, Any]
    packed: Mapping[str, str]  # tensors stored in int8, with the dtype they had
    places: Sequence[Place]
    sha256: str = ""

    def document(self) -> dict[str, Any]:
        """Return what the sum is taken over, as data."""
        return {"card": self.card.to_json(), "numbers": self.numbers, "packed": self.packed}

    def digest(self) -> _Hash:
        """Begin the sum; every tensor's `mark` and bytes must follow, in their order."""
        return hashlib.sha256(canonical(self.document()).encode())

    def encoded(self) -> bytes:
        """Return the file's first bytes, up to the first tensor."""
        document = canonical({**self.document(), "sha256": self.sha256})
        head: dict[str, Any] = {"__metadata__": {_OURS: document}}
        for place in self.places:
            ends = [place.start, place.start + place.size]
            head[place.name] = {"dtype": place.dtype, "shape": list(place.shape), "data_offsets": ends}
        text = json.dumps(head, separators=(",", ":")).encode()
        text += b" " * (-len(text) % _LENGTH)
        return len(text).to_bytes(_LENGTH, "little") + text


def mark(place: Place) -> bytes:
    """What of a tensor, beside its bytes, goes into the sum."""
    return f"\n{place.name} {place.dtype} {list(place.shape)}\n".encode()


def canonical(data: Any) -> str:
    """JSON in the one form that the sum is taken over."""
    same = json.loads(json.dumps(data, allow_nan=False))  # keys become texts before they are sorted
    return json.dumps(same, sort_keys=True, separators=(",", ":"))


def laid_out(places: Sequence[Place]) -> list[Place]:
    """Put tensors one after the other."""
    found, start = [], 0
    for place in sorted(places, key=lambda place: place.order):
        found.append(Place(place.name, place.dtype, place.shape, start))
        start += place.size
    return found


def read(stream: BinaryIO, size: int, what: str) -> Header:
    """Read a header from a stream of `size` bytes; `what` names the pot in an error."""
    count = int.from_bytes(stream.read(_LENGTH), "little")
    if size < _LENGTH or not 2 <= count <= MOST:
        raise StoreError(f"{what} is not a pot: give a file that `infinipot pots export` wrote")
    if count > size - _LENGTH:
        raise damaged(what, "it is cut short")
    head = _parsed(stream.read(count), what)
    told = head.pop("__metadata__", None)
    if not isinstance(told, dict) or not isinstance(told.get(_OURS), str):
        raise StoreError(f"{what} holds tensors but is not a pot: give a file that infinipot wrote")
    document = _parsed(told[_OURS], what)
    card = Card.from_json(document.get("card"), what)
    places = [_place(name, value, what) for name, value in head.items()]
    if places != laid_out(places):
        raise damaged(what, "its tensors are out of place")
    end = _LENGTH + count + sum(place.size for place in places)
    if end != size:
        raise damaged(what, "it is cut short" if end > size else "something follows its end")
    if card.bytes != size - _LENGTH - count:  # whoever loads it trusts the card's word for what it takes
        raise damaged(what, "its card lies about its size")
    return _header(document, card, places, what)


def _header(document: dict[str, Any], card: Card, places: list[Place], what: str) -> Header:
    match document:
        case {"numbers": dict(numbers), "packed": dict(packed), "sha256": str(found)} if (
            set(document) == _PARTS
        ):
            shapes = {place.name: (place.dtype, place.shape) for place in places}
            if all(_fits(name, dtype, shapes) for name, dtype in packed.items()):
                return Header(card, numbers, packed, places, found)
    raise damaged(what, "its numbers are not those of a pot")


def _fits(name: str, dtype: object, shapes: Mapping[str, tuple[str, tuple[int, ...]]]) -> bool:
    """Say whether a tensor in int8 has its scales, one for each row."""
    kind, shape = shapes.get(name, ("", ()))
    scales = ("F32", (*shape[:-1], 1))
    return dtype in FLOATS and kind == "I8" and bool(shape) and shapes.get(name + SCALE) == scales


def _place(name: str, value: Any, what: str) -> Place:
    """Return one tensor's place, of data that may say anything."""
    match value:
        case {"dtype": str(dtype), "shape": [*shape], "data_offsets": [start, end], **rest} if not rest:
            whole = all(type(number) is int and 0 <= number < 2**40 for number in (*shape, start, end))
            if whole and len(shape) <= 8 and dtype in WIDTHS and name.isascii():
                place = Place(name, dtype, tuple(shape), start)
                if start + place.size == end:
                    return place
    raise damaged(what, f"its header lies about {ascii(name)[:80]}")


def _parsed(text: bytes | str, what: str) -> dict[str, Any]:
    """Parse JSON that names nothing twice."""
    try:
        found = json.loads(
            text if isinstance(text, str) else text.decode(),
            object_pairs_hook=_once,
            parse_float=_finite,
            parse_constant=_no_number,
        )
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise damaged(what, "its header is not readable")
    return found


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name comes twice")
    return found


def _finite(text: str) -> float:
    """A number; not 1e999, which Python takes for infinity and the sum cannot be taken over."""
    return float(text) if math.isfinite(float(text)) else _no_number(text)


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"{text} is not a number")


def damaged(what: str, how: str) -> StoreError:
    """The error of a pot that is not as it was written."""
    return StoreError(f"{what} is damaged ({how}): read its text again, or import a copy of it")
