"""A state as one safetensors file, exact or in int8; read with suspicion and checked to the last byte.

The file's metadata holds one JSON document: the card, the state's numbers, which tensors are packed, and a
SHA-256 over all of that and over every tensor's name, dtype, shape and bytes. `safetensors` refuses gaps,
overlaps and anything after the end; nothing in a file is ever run. `head` does without torch.
"""

import hashlib
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from safetensors import SafetensorError, safe_open

from infinipot.errors import StoreError
from infinipot.store.card import Card

if TYPE_CHECKING:
    from torch import Tensor

    from infinipot.core.state import State

# dtypes of a pot: name in torch, bytes
DTYPES = {"F64": ("float64", 8), "I64": ("int64", 8), "F32": ("float32", 4), "I32": ("int32", 4),
          "F16": ("float16", 2), "BF16": ("bfloat16", 2), "I16": ("int16", 2), "I8": ("int8", 1),
          "U8": ("uint8", 1)}  # fmt: skip
_NAMES = {f"torch.{name}": code for code, (name, _) in DTYPES.items()}
_FLOATS = ("F64", "F32", "F16", "BF16")
_PACKED = ("keys", "values", "anchors")  # the last part of the names of what int8 may round
_SCALE = ".scale"  # after the name of a tensor in int8
LONGEST_HEAD = 4 * 2**20  # bytes: real pots have some hundred thousand; parsed it takes 20 times as many
_OURS = "infinipot"  # the key of the document in the metadata


class Place(NamedTuple):
    """One tensor of a file: its name, dtype and shape."""

    name: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """Bytes of the tensor."""
        return math.prod(self.shape) * DTYPES[self.dtype][1]


@dataclass(frozen=True)
class Head:
    """All of a pot's file but its tensors."""

    card: Card
    numbers: Mapping[str, Any]
    packed: Mapping[str, str]  # tensors stored in int8, with the dtype they had
    places: Sequence[Place]  # in the order of the checksum: the widest dtype first, then by name
    sha256: str = ""

    def document(self) -> dict[str, Any]:
        """Return what the checksum is taken over, as data."""
        return {"card": self.card.to_json(), "numbers": self.numbers, "packed": self.packed}

    def checksum(self, tensors: "Iterator[Tensor]") -> str:
        """Return the SHA-256 of the document and of the tensors, given in the order of the places."""
        import torch

        digest = hashlib.sha256(canonical(self.document()).encode())
        for place, tensor in zip(self.places, tensors, strict=True):
            digest.update(f"\n{place.name} {place.dtype} {list(place.shape)}\n".encode())
            digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
        return digest.hexdigest()


def canonical(data: Any) -> str:
    """JSON in the one form that the checksum is taken over."""
    same = json.loads(json.dumps(data, allow_nan=False))  # keys become texts before they are sorted
    return json.dumps(same, sort_keys=True, separators=(",", ":"))


def write(path: Path, state: "State", card: Card) -> Card:
    """Write a state as its card's encoding says; return the card as it was written."""
    from safetensors.torch import save_file

    tensors, packed = _pack(state.tensors) if card.encoding == "int8" else (dict(state.tensors), {})
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    places = _ordered(Place(name, _NAMES[str(t.dtype)], tuple(t.shape)) for name, t in tensors.items())
    head = Head(replace(card, bytes=sum(place.size for place in places)), state.numbers, packed, places)
    sha256 = head.checksum(tensors[place.name] for place in places)
    try:
        save_file(tensors, path, {_OURS: canonical({**head.document(), "sha256": sha256})})
    except SafetensorError as error:  # the library has one error for all, a full disk too
        raise StoreError(f"cannot write {path.name}: {_line(error)}", remedy="free some space") from error
    return head.card


def read(path: Path, what: str) -> "tuple[State, Card]":
    """Read a whole file; `what` names the pot in an error."""
    from infinipot.core.state import State

    tensors: dict[str, Tensor] = {}
    found = _checked(path, what, tensors.__setitem__)
    return State(_unpack(tensors, found.packed), found.numbers), found.card


def check(path: Path, what: str) -> Card:
    """Read a whole file and keep nothing of it but its card."""
    return _checked(path, what, lambda *_: None).card


def head(path: Path, what: str) -> Head:
    """Read the head of a file, and see that it covers the file exactly; the tensors are not looked at."""
    try:
        with path.open("rb") as stream:
            if int.from_bytes(stream.read(8), "little") > LONGEST_HEAD:
                raise ValueError("its header is too long")
        with safe_open(path, "np") as opened:
            document = json.loads((opened.metadata() or {}).get(_OURS, "{}"))
            slices = [(name, opened.get_slice(name)) for name in opened.keys()]  # noqa: SIM118  no mapping
            places = _ordered(Place(name, it.get_dtype(), tuple(it.get_shape())) for name, it in slices)
        card = Card.from_json(document.pop("card", None), what)
        made = Head(card, document.pop("numbers"), document.pop("packed"), places, document.pop("sha256"))
        canonical(made.document())  # no number without end
        shapes = {place.name: (place.dtype, place.shape) for place in places}
        fits = all(_fits(name, dtype, shapes) for name, dtype in made.packed.items())
        if document or not fits or not isinstance(made.numbers, dict):
            raise ValueError("its numbers are not those of a pot")
        if card.bytes != sum(place.size for place in places):  # whose word a loader trusts
            raise ValueError("its card lies about its size")
    except StoreError:
        raise
    except Exception as error:  # a stranger's file can trip the library, JSON and us in many ways
        raise damaged(what, _line(error)) from error
    return made


def _ordered(places: Iterable[Place]) -> list[Place]:
    return sorted(places, key=lambda place: (-DTYPES[place.dtype][1], place.name))


def damaged(what: str, how: str) -> StoreError:
    """The error of a file that is not a pot as it was written."""
    remedy = "read its text again, or import a copy of it"
    return StoreError(f"{what} is not a whole pot ({how})", remedy=remedy)


def _checked(path: Path, what: str, take: "Callable[[str, Tensor], None]") -> Head:
    """Read a whole file and check it; `take` is given each tensor, in its own memory."""
    found = head(path, what)

    def tensors() -> "Iterator[Tensor]":
        # Read, not mapped: a mapped file would count twice until its pages are given up.
        with safe_open(path, "pt", backend="pread") as opened:
            for place in found.places:
                try:
                    take(place.name, tensor := opened.get_tensor(place.name))
                except (SafetensorError, OverflowError, TypeError) as error:  # a shape no tensor can have
                    raise damaged(what, _line(error)) from error
                yield tensor

    if found.checksum(tensors()) != found.sha256:
        raise damaged(what, "its checksum is wrong")
    return found


def _fits(name: str, dtype: object, shapes: Mapping[str, tuple[str, tuple[int, ...]]]) -> bool:
    """Say whether a tensor in int8 has its scales, one for each row."""
    kind, shape = shapes.get(name, ("", ()))
    scales = ("F32", (*shape[:-1], 1))
    return dtype in _FLOATS and kind == "I8" and bool(shape) and shapes.get(name + _SCALE) == scales


def _pack(tensors: "Mapping[str, Tensor]") -> "tuple[dict[str, Tensor], dict[str, str]]":
    """Round rows of keys and values to int8, each with a scale of its own; everything else stays exact."""
    import torch

    found, packed = {}, {}
    for name, tensor in tensors.items():
        if name.rpartition(".")[2] not in _PACKED or not tensor.is_floating_point():
            found[name] = tensor
            continue
        wide = tensor.float()
        scale = wide.abs().amax(-1, keepdim=True) / 127  # [..., S, 1]
        found[name] = (wide / scale.clamp(min=torch.finfo(scale.dtype).tiny)).round().to(torch.int8)
        found[name + _SCALE] = scale
        packed[name] = _NAMES[str(tensor.dtype)]
    return found, packed


def _unpack(tensors: "dict[str, Tensor]", packed: Mapping[str, str]) -> "dict[str, Tensor]":
    """Undo `_pack`, but for the rounding; `head` has seen to it that shapes fit."""
    import torch

    for name, dtype in packed.items():
        wide = tensors[name] * tensors.pop(name + _SCALE)
        tensors[name] = wide.to(getattr(torch, DTYPES[dtype][0]))
    return tensors


def _line(error: Exception) -> str:
    """Say in one line what the library, or JSON, found wrong."""
    return " ".join(str(error).removeprefix("Error while deserializing header: ").split())[:120].lower()
