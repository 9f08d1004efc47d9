"""How a model's weights are held: as their file has them, rounded to few bits, or in full; and why."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace

import torch

from infinipot.common.sizes import in_bytes
from infinipot.common.suggest import find
from infinipot.core.cuda.dispatch import kernels
from infinipot.errors import ConfigError
from infinipot.hf.cuda.fp8 import LEAST_CARD
from infinipot.hf.cuda.grouped import GROUP
from infinipot.hf.cuda.repack import FORMATS
from infinipot.hf.packed import ggml
from infinipot.hf.packed.ggml import UNPACK
from infinipot.hf.packed.gguf_index import Index

BITS = {"int8": 8, "int4": 12}
"""What is asked for, and ggml's number of the format: Q8_0 and Q4_K."""
ON_CARD = {"int4": 0.62, "int8": 1.05, "fp8": 1.2}  # likewise on a card, embedding and head among them
BYTES = {8: 34 / 32, 12: 4.5 / 8}  # a weight takes in these formats
ROOM = 2_000_000_000  # bytes of a card beside the weights: a pot, and what a chunk is computed in
CHOICES = ("auto", "int4", "int8", "fp8", "full")
INSTALL = f"pip install {ggml.PACKAGE}"
SLOW = "weights are unpacked for every token, which is slow: there is no Triton"


@dataclass(frozen=True)
class Choice:
    """How weights are held."""

    rounded: int | None = None  # None: in full; else packed, floats rounded to this format, or 0: not at all
    how: str = ""  # in words, where not in full
    note: str = ""  # what a person should hear
    on_card: str = ""  # int4, int8 or fp8 where a card holds them

    @property
    def packed(self) -> bool:
        """Say whether weights stay in few bits."""
        return self.rounded is not None or bool(self.on_card)

    def bytes(self, count: Callable[[float], int], itemsize: int, index: Index | None) -> int:
        """Return what the weights take, given their bytes at so many a value."""
        if self.on_card and index and self.rounded == 0:
            return int(1.3 * index.packed_bytes)
        if self.on_card:
            return count(ON_CARD[self.on_card])
        if self.rounded is None:
            return count(itemsize)
        return index.packed_bytes if index is not None else count(BYTES[self.rounded])


IN_FULL = Choice()


def choose_weights(wanted: str, device: torch.device, dtype: torch.dtype, index: Index | None) -> Choice:
    """Decide; `index` is a GGUF file's, None for other models."""
    find("weights", wanted, dict.fromkeys(CHOICES), field="weights")
    if wanted == "full":
        return IN_FULL
    if wanted == "auto":
        return _automatic(device, dtype, index)
    if device.type == "cuda":
        return _on_card(wanted, device, index)
    if wanted == "fp8":
        raise _refused("fp8 weights are for cards that multiply them", "use `weights` int8, int4 or full")
    if device.type != "cpu":
        raise _refused(f"{wanted} weights are for CPUs and CUDA cards", "use `weights` full")
    found = ggml.find()
    if isinstance(found, str):
        raise _refused(f"{wanted} weights need ggml's kernels, and {found}", INSTALL)
    _refuse_unknown(index)
    if index is not None and any(place.packable for place in index.places):
        return Choice(BITS[wanted], f"{' and '.join(_packed_formats(index))}, as in the file")
    return Choice(BITS[wanted], f"{ggml.UNPACK[BITS[wanted]].upper()}, rounded from the file's")


def choose_what_fits(
    device: torch.device, dtype: torch.dtype, index: Index | None, count: Callable[[float], int], free: int
) -> Choice:
    """Decide for `auto` on a card: in full where that leaves room for a pot, else in 8 or 4 bits.

    What fits in no way is in full, and refused by whoever loads it.
    """
    whole = IN_FULL.bytes(count, dtype.itemsize, index)
    if whole + ROOM <= free:
        return IN_FULL
    for wanted in ("int8", "int4"):
        with suppress(ConfigError):  # blocks that cannot be held
            found = _on_card(wanted, device, index)
            if found.bytes(count, dtype.itemsize, index) + ROOM <= free:
                why = f"in full they take {in_bytes(whole)}, and {in_bytes(free)} is free"
                return replace(found, note=f"weights are held as {found.how}: {why}")
    return IN_FULL


def _on_card(wanted: str, device: torch.device, index: Index | None) -> Choice:
    """A card's own: groups of columns in 4 or 8 bits, or 8-bit floats where the card multiplies them."""
    if wanted == "fp8":
        found = torch.cuda.get_device_capability(device)
        if found < LEAST_CARD:
            there = ".".join(map(str, found))
            problem = f"this card (compute capability {there}) does not multiply 8-bit floats"
            raise _refused(problem, "use `weights` int8, int4 or full")
        return Choice(how="8-bit floats, rounded from the file's", on_card=wanted)
    _refuse_unknown(index)
    note = "" if kernels(device) else SLOW
    formats = _packed_formats(index) if index else []
    if not formats:
        return Choice(how=f"{wanted} by {GROUP}, rounded from the file's", note=note, on_card=wanted)
    exact = [name for name in formats if name in {UNPACK[kind].upper() for kind in FORMATS}]
    rest = [name for name in formats if name not in exact]
    told = [f"{' and '.join(exact)}, as in the file"] if exact else []
    told += [f"{' and '.join(rest)} rounded to {wanted}"] if rest else []
    return Choice(0, "; ".join(told), note, wanted)


def _automatic(device: torch.device, dtype: torch.dtype, index: Index | None) -> Choice:
    formats = _packed_formats(index) if index else []
    if not formats or device.type != "cpu" or dtype != torch.float32:
        return IN_FULL
    found = ggml.find()
    if isinstance(found, str):
        return Choice(note=f"weights are unpacked, which takes more memory and time: {found} ({INSTALL})")
    _refuse_unknown(index)
    held = f"{' and '.join(formats)}, as in the file"
    return Choice(0, held, f"weights stay {held}")


def _packed_formats(index: Index) -> list[str]:
    return sorted({ggml.UNPACK[place.kind].upper() for place in index.places if place.packable})


def _refuse_unknown(index: Index | None) -> None:
    """Refuse a file with matrices in a format that cannot be held."""
    known = {*map(str.upper, ggml.UNPACK.values()), "F32", "F16", "BF16"}
    if index and (unknown := [name for name in index.formats if name not in known]):
        raise _refused(f"its weights are in {unknown[0]}, which cannot be held packed", "use `weights` full")


def _refused(problem: str, remedy: str) -> ConfigError:
    return ConfigError(problem, field="weights", remedy=remedy)
