"""What an operator may choose: options and `INFINIPOT_*` variables are made from the fields of `Settings`."""

import hmac
import ipaddress
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from hashlib import sha256
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

from infinipot.errors import ConfigError
from infinipot.recipes import options
from infinipot.recipes.option import Kind, Option
from infinipot.text.tokenizer import Format

MIB = 2**20
PUBLIC = "public"  # the one tenant of a server without keys
LEAST_KEY = 16  # characters below which a key can be guessed
GUESSED = f"a key of {{}} characters can be guessed: use {LEAST_KEY} or more, as of `openssl rand -hex 32`"
OPEN = "ANYONE who can reach {} can use this server and its pots: give `api_key`, or leave out `host`"
POTS, ACCESS, BOUNDS = "Pots", "Who may come", "Bounds"
_SLOWER = "How many times as long tokens of answers may take while texts are read: more reads faster."
_CHUNK = "Tokens read between two tokens of others, always so many; without it as `slowdown` allows."
_ORIGIN = "Page that may ask from a browser, such as https://app.example; repeat it, or use commas."
TEMPORARY = Path(tempfile.gettempdir())


@dataclass(frozen=True)
class Keys:
    """The keys a server accepts, as digests, so that none can be logged; none means that anyone may ask."""

    digests: tuple[bytes, ...] = ()
    shortest: int | None = None  # characters of the shortest key

    @classmethod
    def of(cls, keys: Iterable[str]) -> Self:
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
        """Return the tenant of a key, or None where it is not known; takes the same time for every key."""
        if not self.digests:
            return PUBLIC
        given = sha256(key or b"").digest()
        matches = sum(hmac.compare_digest(digest, given) for digest in self.digests)
        return given.hex()[:16] if matches and key is not None else None


def _listed_keys(texts: Iterable[str], file: Path | None) -> list[str]:
    """Return single keys from texts with commas between them, and from a file with one a line."""
    found = [key for text in texts for key in text.split(",")]
    if file is None:
        return found
    try:
        lines = file.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not text"
        raise ConfigError(f"cannot read the keys in {file}: {str(reason).lower()}") from error
    filed = [line.strip() for line in lines if line.strip() and not line.startswith("#")]
    if not filed:
        raise ConfigError(f"there is no key in {file}: write one a line")
    return found + filed


def _origins(texts: Iterable[str]) -> tuple[str, ...]:
    """Return origins as browsers send them; refuse what no browser sends, which would allow nothing."""
    found = []
    for origin in (part.strip() for text in texts for part in text.split(",")):
        try:
            parts = urlsplit(origin)
            usual = f"{parts.scheme}://{parts.netloc.lower()}"
        except ValueError:
            usual = ""
        if origin.lower().rstrip("/") != usual or parts.scheme not in ("http", "https") or "@" in origin:
            problem, remedy = f"'{origin}' is no origin", "use `allow_origin` such as https://app.example"
            raise ConfigError(problem, field="allow_origin", remedy=remedy)
        found.append(usual)
    return tuple(dict.fromkeys(found))


def _same(option: Option, group: str = POTS, **other: Any) -> Any:
    """A field declared as an option of other commands, but for what is `other` here."""
    made = replace(option, group=group, **other)
    return field(default=() if made.many else made.default, metadata={"option": made})


def _set(default: Any, group: str, help: str, kind: Kind = str, **more: Any) -> Any:
    """A field with a declaration of its own; `kind` is its type where the default is None."""
    kind = kind if default is None else Path if isinstance(default, Path) else type(default)
    return _same(Option("", kind, default, help), group, **more)


@dataclass(frozen=True)
class Settings:
    """One server's settings."""

    model: str = _same(options.MODEL)
    recipe: str = _same(options.RECIPE, help="Method that bounds memory.")
    capacity: int = _same(options.SIZES["capacity"], help="KV entries per layer and head of a pot.")
    pot_bits: int | None = _same(options.SIZES["pot_bits"])
    units: str | None = _same(options.CHOICE["units"], shown="sentences")
    recall: int | None = _same(options.SIZES["recall"], least=0, metavar="TOKENS", words=())
    format: Format | None = _same(options.FORMAT, shown=options.DIALOGUE)  # noqa: RUF009
    slots: int = _set(2, POTS, "Requests served at the same time.", least=1)
    conversations: int = _set(2, POTS, "Conversations kept for their next turn, beside the slots.", least=0)
    queue: int = _set(32, POTS, "Requests that may wait; more get 429.", least=0)
    slowdown: float = _set(2.5, POTS, _SLOWER, least=1.1)
    read_chunk: int | None = _set(None, POTS, _CHUNK, int, least=16, shown="what slowdown allows")
    store: str | None = _same(options.STORE, help="Folder or fsspec address of kept pots.")
    device: str = _same(options.DEVICE)
    dtype: str = _same(options.DTYPE)
    weights: str = _same(options.WEIGHTS)
    threads: int | None = _same(options.THREADS)
    host: str = _set("127.0.0.1", ACCESS, "Address to listen on; 0.0.0.0 is every one.")
    port: int = _set(8000, ACCESS, "Port to listen on; 0 is any that is free.", least=0, most=65_535)
    keys: Keys = field(default_factory=Keys)
    allow_origin: tuple[str, ...] = _set(None, ACCESS, _ORIGIN, many=True, metavar="ORIGIN")
    max_body: int = _set(8 * MIB, BOUNDS, "Bytes of a JSON request.", least=1024)
    max_upload: int = _set(4096 * MIB, BOUNDS, "Bytes of an upload.", least=1024)
    max_uploads: int = _set(4, BOUNDS, "Uploads received at the same time.", least=1)
    max_downloads: int = _set(4, BOUNDS, "Pots sent as files at the same time.", least=1)
    max_archive: int = _set(8192 * MIB, BOUNDS, "Bytes on disk of what a slot has read.", least=65_536)
    max_tokens: int = _set(16_384, BOUNDS, "Tokens of an answer.", least=1)
    idle_s: float = _set(30.0, BOUNDS, "Seconds until a client that stops sending is let go.", least=0.01)
    least_rate: int = _set(1024, BOUNDS, "Bytes a second below which a body is not waited for.", least=0)
    max_send_s: float = _set(3600.0, BOUNDS, "Seconds a client has to send a body.", least=0.01)
    drain_s: float = _set(30.0, BOUNDS, "Seconds that running requests get at the end.", least=0)
    spool: Path = _set(TEMPORARY, BOUNDS, "Folder for uploads on their way.", shown="the system's own")  # noqa: RUF009

    def __post_init__(self) -> None:
        for name, option in _DECLARED.items():
            option.check(getattr(self, name))
        if not self.spool.is_dir():
            problem = f"there is no folder {self.spool} for uploads"
            raise ConfigError(problem, field="spool", remedy="make it, or give another `spool`")

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Self:
        """Return the settings of options by their names; what is None or missing has its default."""
        told = {name: given.get(option.name) for name, option in _DECLARED.items()}
        told["allow_origin"] = _origins(told["allow_origin"] or ())
        keys = Keys.of(_listed_keys(given.get("api_key") or [], given.get("api_key_file")))
        return cls(keys=keys, **{name: value for name, value in told.items() if value is not None})

    @classmethod
    def of_variables(cls, variables: Mapping[str, str]) -> Self:
        """Return the settings that `INFINIPOT_*` variables say, for where there is no command line."""
        given: dict[str, Any] = {}
        for option in OPTIONS:
            if text := variables.get(option.in_environment):
                try:
                    given[option.name] = [text] if option.many else option.parse(text)
                except ConfigError as error:
                    raise ConfigError(f"{option.in_environment} is '{text}'", remedy=error.remedy) from None
        return cls.of(given)

    @property
    def local(self) -> bool:
        """Say whether only this machine can reach the server."""
        try:
            return self.host == "localhost" or ipaddress.ip_address(self.host).is_loopback
        except ValueError:  # a name, or empty, which means every interface
            return False

    def warnings(self) -> list[str]:
        """Return what an operator must be told loudly, one line each; options are named in backticks."""
        found = []
        if not self.local and not self.keys:
            found.append(OPEN.format(self.host or "this machine"))
        if self.keys.shortest is not None and self.keys.shortest < LEAST_KEY:
            found.append(GUESSED.format(self.keys.shortest))
        return found


_FIELDS = [one for one in fields(Settings) if one.metadata]
_DECLARED = {one.name: replace(one.metadata["option"], name=one.name.removesuffix("_s")) for one in _FIELDS}
_KEY = "Key for every route but /health and /ready; repeat it, or use commas. Better in a file, unseen."
_KEYS = (
    Option("api_key", str, None, _KEY, ACCESS, many=True),
    Option("api_key_file", Path, None, "File with keys, one a line.", ACCESS),
)
OPTIONS = (*_DECLARED.values(), *_KEYS)
"""Everything an operator can set, in the order of the help."""
