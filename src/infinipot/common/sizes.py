"""Sizes as people write and read them: 8k tokens, 1.4 GB."""

import re

UNITS = {"": 1, "k": 1024, "m": 1024 * 1024}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)([km]?)")


def size(text: str) -> int:
    """Read a number of tokens or entries: 2048, 8k (8,192), 1m (1,048,576)."""
    match = _SIZE.fullmatch(text.lower())
    count = float(match[1]) * UNITS[match[2]] if match else 0
    if count < 1 or count != int(count):
        raise ValueError(text)
    return int(count)


def short(count: int) -> str:
    """Write a number of tokens as people do: 8K, 1M, 5000."""
    for unit, letter in ((UNITS["m"], "M"), (UNITS["k"], "K")):
        if count >= unit and count % unit == 0:
            return f"{count // unit}{letter}"
    return str(count)


def in_bytes(count: int) -> str:
    """Write a number of bytes: 226 MB, 1.4 GB."""
    return f"{count / 1e9:.1f} GB" if count >= 1e8 else f"{count / 1e6:.1f} MB"
