"""A page or file of the web, within bounds: of size, time, redirects, and of the addresses that are asked.

The addresses that are checked are those that are connected to, so that a name which changes its address in
between reaches nothing. Proxies are not used.
"""

import http.client
import ipaddress
import socket
import ssl
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import BinaryIO
from urllib.parse import SplitResult, quote, urljoin, urlsplit, urlunsplit

from infinipot.errors import InputError
from infinipot.text.files import BLOCK, label

SCHEMES = ("http", "https")
_MOVED = (301, 302, 303, 307, 308)
_HEADERS = {"User-Agent": "infinipot", "Accept": "*/*", "Accept-Encoding": "identity", "Connection": "close"}
_BY_HAND = "download it with another program, and give the file"
_UNQUOTED = "/?:@!$&'()*+,;=%[]~"  # what an address may have in it as it is
# Not of the web, whatever Python knows of them: of one site, of protocols, and wrapped ones.
_INSIDE = ("192.0.0.0/24", "::/96", "::ffff:0:0:0/96", "64:ff9b:1::/48", "fec0::/10")
_NOT_PUBLIC = tuple(ipaddress.ip_network(network) for network in _INSIDE)
_TRANSLATED = ipaddress.ip_network("64:ff9b::/96")


@dataclass(frozen=True)
class Bounds:
    """What fetching an address may take."""

    most_bytes: int = 128 * 2**20
    seconds: float = 120.0
    redirects: int = 5
    private: bool = False  # whether addresses of private networks are asked too


USUAL = Bounds()


@dataclass(frozen=True)
class Fetched:
    """What a server says of a file that was fetched."""

    mime: str = ""
    charset: str = ""


def is_address(name: str) -> bool:
    """Say whether a name is an address of the web."""
    return name.lower().startswith(("http://", "https://"))


def fetch(url: str, out: BinaryIO, bounds: Bounds = USUAL) -> Fetched:
    """Write what an address holds to a file."""
    until, asked = time.monotonic() + bounds.seconds, url
    for _ in range(bounds.redirects + 1):
        with (
            _connected(_parsed(asked), bounds, until) as connection,
            _failing(url, bounds, until),
            _answer(connection, asked) as response,
        ):
            if response.status not in _MOVED or not (moved := response.headers.get("Location")):
                return _taken(response, url, out, bounds, until)
            asked = urljoin(asked, _as_sent(moved))
    problem = f"{label(url)} leads on more than {bounds.redirects} times"
    raise InputError(problem, remedy="give the last address")


def _parsed(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018  raises where it is no number
    except ValueError as error:
        raise InputError(f"{label(url)} is no address ({error})") from error
    if parts.scheme not in SCHEMES or not parts.hostname:
        raise InputError(f"{label(url)} is no address of the web", remedy="use http:// or https://")
    if parts.username or parts.password:
        raise InputError("an address with a password in it is not asked", remedy=_BY_HAND)
    return parts


def _as_sent(header: str) -> str:
    """Return a header as UTF-8, where that is what came; the library takes its bytes for Latin-1."""
    try:
        return header.encode("latin-1").decode()
    except UnicodeError:
        return header


def _resolved(host: str, port: int, private: bool) -> Sequence[str]:
    """Return the addresses of a host; those of a private network only where that is wanted."""
    try:
        found = [str(entry[4][0]) for entry in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]
    except (OSError, UnicodeError) as error:
        raise InputError(f"there is no host {label(host)}", remedy="look at the address again") from error
    inside = [address for address in found if not _is_public(address)]
    if inside and not private:
        problem = f"{label(host)} is at {inside[0]}, an address of a private network"
        raise InputError(problem, field="allow_private", remedy="give `allow_private` if you mean it")
    return list(dict.fromkeys(found))


def _is_public(address: str) -> bool:
    known = ipaddress.ip_address(address.partition("%")[0])
    inner = None
    if isinstance(known, ipaddress.IPv6Address):  # addresses of the older kind, wrapped
        inner = known.ipv4_mapped or known.sixtofour or (known.teredo[1] if known.teredo else None)
        if known in _TRANSLATED:
            inner = ipaddress.IPv4Address(int(known) & 0xFFFFFFFF)
    if known.is_multicast or any(known in network for network in _NOT_PUBLIC):
        return False
    return known.is_global and (inner is None or _is_public(str(inner)))


@contextmanager
def _connected(url: SplitResult, bounds: Bounds, until: float) -> Iterator[http.client.HTTPConnection]:
    """Connect to an address that was checked; at the time's end the connection is cut."""
    host, port = url.hostname or "", url.port or (443 if url.scheme == "https" else 80)
    addresses = _resolved(host, port, bounds.private)
    connection = http.client.HTTPConnection(host, port)
    with _failing(url.geturl(), bounds, until):
        plain = _answering(addresses, port, until)
        try:
            plain.settimeout(_left(until))
            connection.sock = plain
            if url.scheme == "https":
                connection.sock = ssl.create_default_context().wrap_socket(plain, server_hostname=host)
        except BaseException:
            plain.close()
            raise
    cut = threading.Timer(_left(until), _cut, [connection.sock])
    cut.daemon = True
    cut.start()
    try:
        yield connection
    finally:
        cut.cancel()
        connection.close()


def _answering(addresses: Sequence[str], port: int, until: float) -> socket.socket:
    """Return a connection to the first address that answers; they share the time that is left."""
    for rest in range(len(addresses), 0, -1):
        try:
            return socket.create_connection((addresses[-rest], port), timeout=_left(until) / rest)
        except OSError as error:
            failed = error
    raise failed


def _left(until: float) -> float:
    return max(0.1, until - time.monotonic())


def _cut(taken: socket.socket) -> None:
    with suppress(OSError):
        taken.shutdown(socket.SHUT_RDWR)


@contextmanager
def _failing(url: str, bounds: Bounds, until: float) -> Iterator[None]:
    """Turn what a connection raises into one line."""
    said = f"cannot read {label(url)}"
    try:
        yield
    except (OSError, http.client.HTTPException, ValueError) as error:
        if isinstance(error, TimeoutError) or time.monotonic() >= until:
            raise InputError(f"{said} within {bounds.seconds:g} s", remedy=_BY_HAND) from error
        if isinstance(error, ssl.SSLCertVerificationError):
            raise InputError(f"{said}: its certificate is not trusted ({error.verify_message})") from error
        why = (getattr(error, "strerror", "") or str(error) or type(error).__name__).lower()
        raise InputError(f"{said}: {label(why)}") from error


def _answer(connection: http.client.HTTPConnection, url: str) -> http.client.HTTPResponse:
    parts = urlsplit(url)
    target = urlunsplit(("", "", parts.path or "/", parts.query, ""))
    connection.request("GET", quote(target, safe=_UNQUOTED), headers=_HEADERS)
    return connection.getresponse()


def _taken(
    response: http.client.HTTPResponse, url: str, out: BinaryIO, bounds: Bounds, until: float
) -> Fetched:
    """Write a response's body, if there is one and the body is not too large."""
    if response.status != http.HTTPStatus.OK:
        said = f"{response.status} {label(response.reason, 60)}"
        raise InputError(f"{label(url)} cannot be read: its server says {said}")
    if response.headers.get("Content-Encoding", "identity").lower() != "identity":
        raise InputError(f"{label(url)} comes compressed, though that was not asked for", remedy=_BY_HAND)
    size = int(response.headers.get("Content-Length") or 0)
    while size <= bounds.most_bytes and (data := response.read1(BLOCK)):
        out.write(data)
        size = max(size, out.tell())
    if size > bounds.most_bytes:
        most = f"{bounds.most_bytes / 1e6:,.0f} MB"
        raise InputError(f"{label(url)} has more than {most}", remedy=_BY_HAND)
    if response.length != 0 and time.monotonic() >= until:  # cut; without a length nobody knows where
        raise TimeoutError
    if response.length:  # bytes that were promised
        raise InputError(f"{label(url)} ended before it was whole", remedy="try again")
    return Fetched(response.headers.get_content_type(), response.headers.get_content_charset() or "")
