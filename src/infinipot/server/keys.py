"""API keys, held as digests: who is asking, told in constant time.

It does not know HTTP. A key itself is forgotten as soon as it was taken in, so it cannot be logged.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from infinipot.errors import ConfigError

PUBLIC = "public"  # the one tenant of a server without keys


@dataclass(frozen=True)
class Keys:
    """The keys a server accepts; none means that anyone may ask."""

    digests: tuple[bytes, ...] = ()
    shortest: int | None = None  # characters of the shortest key

    @classmethod
    def of(cls, keys: Iterable[str]) -> Keys:
        """Take in keys; ones that no header can carry are refused."""
        given = [key.strip() for key in keys]
        for key in given:
            if not key:
                raise ConfigError("an API key is empty: give one, or leave `api_key` out")
            if not (key.isascii() and key.isprintable()) or " " in key:
                raise ConfigError("an API key has characters that no header carries: use letters and digits")
        digests = tuple(sorted({sha256(key.encode()).digest() for key in given}))
        return cls(digests, min(map(len, given), default=None))

    def __bool__(self) -> bool:
        return bool(self.digests)

    def tenant(self, key: bytes | None) -> str | None:
        """Return the tenant of a key, or None where it is not known; every key is compared every time."""
        if not self.digests:
            return PUBLIC
        given = sha256(key or b"").digest()
        found = False
        for digest in self.digests:
            found |= hmac.compare_digest(digest, given)
        return given.hex()[:16] if found and key is not None else None


def listed(texts: Iterable[str], file: Path | None = None) -> list[str]:
    """Return single keys from texts with commas between them, and from a file with one a line."""
    found = [key for text in texts for key in text.split(",")]
    if file is not None:
        try:
            lines = file.read_text("utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "it is not text"
            raise ConfigError(f"cannot read the keys in {file}: {str(reason).lower()}") from error
        filed = [line.strip() for line in lines if line.strip() and not line.startswith("#")]
        if not filed:
            raise ConfigError(f"there is no key in {file}: write one a line")
        found += filed
    return found
