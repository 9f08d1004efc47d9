"""What is known of a pot without its tensors: a card, plain data that JSON can hold."""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from typing import Any, Literal, Self

from infinipot.errors import StoreError

FORMAT = 3  # the newest that is understood here
EXACT, ROUNDED = 2, 3  # the formats that are written: of pots of 16 bits, which older versions read, and of 8
Encoding = Literal["exact", "int8"]
_AGAIN = "make it again, or import a copy"
_LONGEST = 256  # characters of a text in a card
_LONGEST_CATALYST = 65_536  # a recipe may hold a text of the user's own


@dataclass(frozen=True)
class Card:
    """A pot's card."""

    model: str  # its name without a folder: what it is known by is `weights`
    weights: str
    tokenizer: str
    rope: str
    dtype: str  # of the keys and values
    recipe: Mapping[str, Any]  # as `Recipe.describe` gives it
    tokens_read: int
    cycles: int
    fill: int
    capacity: int
    title: str
    source_sha256: str  # of the text as UTF-8; of a pot that was appended to, see `joined`
    source_bytes: int
    created: str
    updated: str
    infinipot: str
    encoding: Encoding = "exact"
    bytes: int = 0  # of all tensors as they are stored
    archive: str = ""  # what its archive is known by; empty where it has none
    format: int = EXACT

    def to_json(self) -> dict[str, Any]:
        """Return the card as JSON-ready data, in the words of its own format."""
        told = asdict(self)
        if self.format == 1:
            del told["archive"]
        return told

    @classmethod
    def from_json(cls, data: object, what: str = "the pot") -> Self:
        """Return the card of a stranger's data, every field checked; `what` names the pot in an error."""
        if not isinstance(data, dict) or type(data.get("format")) is not int:
            raise StoreError(f"{what} has no card", remedy=_AGAIN)
        if data["format"] > FORMAT:
            newer = f"{what} has format {data['format']}, newer than {FORMAT}"
            raise StoreError(newer, remedy="upgrade infinipot")
        data = {**({"archive": ""} if data["format"] == 1 else {}), **data}  # older than archives
        if data["format"] < 1 or {field.name for field in fields(cls)} != set(data):
            raise StoreError(f"{what} has a card of unknown make", remedy=_AGAIN)
        if wrong := [name for name, value in data.items() if not _sound(name, value)]:
            raise StoreError(f"{what} has a card with a wrong '{wrong[0]}'", remedy=_AGAIN)
        return cls(**data)


_COUNTS = ("tokens_read", "cycles", "fill", "capacity", "source_bytes", "bytes", "format")
_PATTERNS = {
    **dict.fromkeys(("weights", "tokenizer", "rope", "source_sha256"), re.compile(r"[0-9a-f]{64}")),
    **dict.fromkeys(("created", "updated"), re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")),
    "encoding": re.compile("exact|int8"),
    "archive": re.compile(r"([0-9a-f]{64})?"),
}


def _sound(name: str, value: object) -> bool:
    """Say whether a field's value is one it can have."""
    if name in _COUNTS:
        return type(value) is int and 0 <= value < 2**62
    if name == "recipe":
        if not isinstance(value, dict) or len(value) > 64 or not isinstance(value.get("name"), str):
            return False
        return all(_is_short(key) and _is_single(one) for key, one in value.items())
    if name in _PATTERNS:
        return isinstance(value, str) and bool(_PATTERNS[name].fullmatch(value))
    return _is_short(value)


def _is_short(value: object) -> bool:
    """Say whether a terminal can show the value."""
    return isinstance(value, str) and len(value) <= _LONGEST and value.isprintable()


def _is_single(value: object) -> bool:
    """Say whether JSON can carry the value again: nothing deep, nothing huge."""
    if isinstance(value, str):
        return len(value) <= _LONGEST_CATALYST and not re.search("[\ud800-\udfff]", value)
    return value is None or isinstance(value, float) or (isinstance(value, int) and abs(value) < 2**62)


def now() -> str:
    """The time, as cards write it."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def joined(first: str, second: str) -> str:
    """Return the digest of a text that was appended to, of the digests of both parts."""
    return hashlib.sha256(f"{first}{second}".encode()).hexdigest()
