"""What an operator may choose, checked before anything is loaded.

Plain data: it knows neither the web framework nor a model. Keys are held as digests only.
"""

from __future__ import annotations

import ipaddress
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from infinipot.core.config import DEFAULT_CAPACITY
from infinipot.errors import ConfigError
from infinipot.models.catalog import DEFAULT_MODEL
from infinipot.server.keys import Keys, listed

MIB = 2**20
PREFIX = "INFINIPOT_"
LEAST_KEY = 16  # characters below which a key can be guessed


@dataclass(frozen=True)
class Settings:
    """One server's settings; the defaults are those of `infinipot serve`."""

    model: str
    capacity: int = DEFAULT_CAPACITY
    recipe: str = "infinipot"
    format: str = ""  # of prompts; chat where the model has a template
    slots: int = 2
    conversations: int = 2
    queue: int = 32
    host: str = "127.0.0.1"
    port: int = 8000
    keys: Keys = field(default_factory=Keys)
    store: str | None = None
    device: str = "auto"
    dtype: str = "auto"
    max_body: int = 8 * MIB  # some two million tokens; more goes into a pot by upload
    max_upload: int = 4096 * MIB
    max_uploads: int = 4  # uploads that are being received at once
    max_tokens: int = 16_384
    idle_s: float = 30.0  # a client that sends nothing for so long, in the middle of a request, is let go
    drain_s: float = 30.0
    spool: Path = field(default_factory=lambda: Path(tempfile.gettempdir()))

    def __post_init__(self) -> None:
        least: dict[str, float] = {
            "slots": 1,
            "conversations": 0,
            "queue": 0,
            "max_uploads": 1,
            "max_tokens": 1,
        }
        least |= {"max_body": 1024, "max_upload": 1024, "idle_s": 0.01, "drain_s": 0}
        for name, bound in least.items():
            if getattr(self, name) < bound:
                option = name.replace("_", "-")
                raise ConfigError(f"{option} is {getattr(self, name)}; use at least {bound}")
        if not 0 <= self.port <= 65_535:
            raise ConfigError(f"port is {self.port}; use 1 to 65535, or 0 for any that is free")
        if self.format not in ("", "chat", "plain"):
            raise ConfigError(f"format is '{self.format}'; use chat or plain")
        if not self.spool.is_dir():
            raise ConfigError(
                f"there is no folder {self.spool} for uploads: make it, or give another --spool"
            )

    @classmethod
    def of_variables(cls, variables: Mapping[str, str]) -> Settings:
        """Return the settings that `INFINIPOT_*` variables say, for where there is no command line."""
        given = {name: value for name, value in variables.items() if name.startswith(PREFIX) and value}
        told: dict[str, Any] = {"model": DEFAULT_MODEL}
        for field_ in fields(cls):
            name = PREFIX + field_.name.removesuffix("_s").upper()
            if name in given:
                told[field_.name] = _read(name, given[name], field_.type)
        file = given.get(f"{PREFIX}API_KEY_FILE")
        key = given.get(f"{PREFIX}API_KEY")
        told["keys"] = Keys.of(listed([key] if key else [], Path(file) if file else None))
        return cls(**told)

    @property
    def local(self) -> bool:
        """Say whether only this machine can reach the server."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:  # a name, or empty, which means every interface
            return False

    def warnings(self) -> list[str]:
        """Return what an operator must be told loudly, one line each."""
        found = []
        if not self.local and not self.keys:
            found.append(
                f"ANYONE who can reach {self.host or 'this machine'} can use this server and every pot in "
                "it: give --api-key, or leave out --host"
            )
        if self.keys.shortest is not None and self.keys.shortest < LEAST_KEY:
            found.append(
                f"a key of {self.keys.shortest} characters can be guessed: use {LEAST_KEY} or more, for "
                "example from `openssl rand -hex 32`"
            )
        return found


def _read(name: str, text: str, kind: Any) -> Any:
    """Return a variable's value in its field's type."""
    make = {"int": int, "float": float, "Path": Path}.get(str(kind), str)
    try:
        return make(text)
    except ValueError:
        raise ConfigError(f"{name} is '{text}', which is not a number") from None
