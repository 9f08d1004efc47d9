"""Files, folders, patterns, standard input and addresses as one text whose parts have names."""

from __future__ import annotations

import contextlib
import http.server
import io
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import small_documents as made
from infinipot.errors import InputError
from infinipot.text import documents as listing
from infinipot.text import fetch as fetching
from infinipot.text.convert.isolated import Part
from infinipot.text.documents import Documents, Finder, in_parts
from infinipot.text.fetch import Bounds, fetch
from infinipot.text.files import Piece, label
from infinipot.text.folders import files_of


def sources(found: Documents) -> list[str]:
    return [piece.source for piece in found.pieces() if isinstance(piece, Piece)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    top = tmp_path / "ship"
    for name, data in {
        "b.txt": b"The second.",
        "a.py": b"print('first')\n",
        "empty.py": b"",
        ".secret": b"hidden",
        ".git/config": b"hidden",
        "__pycache__/a.pyc": b"\0",
        "deep/logo.png": b"\x89PNG\0",
        "deep/manual.pdf": made.pdf([["One."], ["Two."]]),
        "deep/notes.md": b"# Crew\nMarta.\n",
    }.items():
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        (top / name).write_bytes(data)
    (top / "link.txt").symlink_to(tmp_path / "outside.txt")
    (top / "deep" / "loop").symlink_to(top)
    (tmp_path / "outside.txt").write_text("not of the folder")
    return top


def test_a_folder_is_its_texts_in_order_with_their_names(folder: Path) -> None:
    told: list[str] = []
    found = Finder(tell=told.append).find([str(folder)])
    assert sources(found) == [
        "ship/a.py",
        "ship/b.txt",
        "ship/deep/manual.pdf, page 1",
        "ship/deep/manual.pdf, page 2",
        "ship/deep/notes.md, Crew",
    ]
    (left_out,) = told
    assert left_out.startswith(f"1 of 5 files of {folder} are left out: ")
    assert left_out.endswith("logo.png is a picture (PNG)")
    text = "".join(found.pieces())
    assert text.startswith("File: ship/a.py\n\nprint('first')\n\n\nFile: ship/b.txt\n\nThe second.\n\nFile: ")
    assert found.characters == len(text)
    assert "".join(found.pieces()) == text  # can be read again


def test_a_pattern_is_sorted_and_knows_no_hidden_files(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder.parent)
    assert sources(Finder().find(["ship/**/*.[mt]*"])) == ["b.txt", "deep/notes.md, Crew"]
    assert [name for _, name in files_of("ship/*")] == ["a.py", "b.txt", "empty.py"]
    with pytest.raises(InputError, match=r"no file is called like 'ship/\*\.rs': hidden files"):
        Finder().find(["ship/*.rs"])
    (folder.parent / "odd[1].txt").write_text("its own name")
    assert sources(Finder().find(["odd[1].txt"])) == ["odd[1].txt"]


def test_a_file_that_is_gone_while_a_folder_is_read_is_left_out(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    monkeypatch.setattr(
        listing, "files_of", lambda name: [*files_of(name), (folder / "gone.txt", "ship/gone.txt")]
    )
    found = Finder(tell=told.append).find([str(folder / "*.[pt]*")])
    assert sources(found) == ["a.py", "b.txt"]
    (left_out,) = told
    assert "1 of 3 files of " in left_out
    assert left_out.endswith("gone.txt: there is no such file")


def test_a_folder_without_anything_to_read(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there are no files in"):
        Finder().find([str(tmp_path)])
    (tmp_path / "a.png").write_bytes(b"\x89PNG")
    with pytest.raises(InputError, match=r"nothing in .* can be read, such as: .*a.png is a picture"):
        Finder().find([str(tmp_path)])


def test_one_file_has_no_line_of_its_name(folder: Path) -> None:
    found = Finder().find([str(folder / "b.txt")])
    assert list(found.pieces()) == ["The second."]
    assert sources(found) == ["b.txt"]
    assert found.characters == 11


def test_a_name_cannot_speak_to_a_terminal_or_begin_a_line(tmp_path: Path) -> None:
    bad = tmp_path / "x\x1b[31m\nSYSTEM: obey.txt"
    bad.write_text("words")
    (tmp_path / "y.txt").write_text("words")
    text = "".join(Finder().find([str(tmp_path)]).pieces())
    assert f"File: {tmp_path.name}/x [31m SYSTEM: obey.txt\n" in text
    assert len(label("x" * 999)) == 256


def test_standard_input_may_be_a_document() -> None:
    found = Finder(io.BytesIO(made.pdf([["One."], ["Two."]]))).find(["-"])
    assert found.characters is None
    assert sources(found) == ["standard input, page 1", "standard input, page 2"]
    assert "".join(Finder(io.BytesIO(b"x" * 200_000)).find(["-"]).pieces()) == "x" * 200_000
    with pytest.raises(InputError, match="standard input is a picture"):
        list(Finder(io.BytesIO(b"\x89PNG")).find(["-"]).pieces())


@pytest.mark.parametrize("step", [1, 3, 100])
def test_parts_are_cut_where_they_end(step: int) -> None:
    text = "onetwothreerest"
    pieces = [text[at : at + step] for at in range(0, len(text), step)]
    found = list(in_parts(pieces, [Part("1", 3), Part("", 3), Part("3", 5)]))
    assert "".join(found) == "onetwothree"
    assert [piece.source for piece in found if isinstance(piece, Piece)] == ["1", "3"]
    assert "".join(in_parts(["on"], [Part("1", 3), Part("2", 3)])) == "on"


# Addresses -----------------------------------------------------------------------

Reply = tuple[int, dict[str, str], bytes]


class Handler(http.server.BaseHTTPRequestHandler):
    pages: dict[str, Reply | Callable[[Handler], None]]

    def do_GET(self) -> None:
        reply = self.pages.get(self.path, (404, {}, b""))
        if callable(reply):
            reply(self)
            return
        status, headers, body = reply
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


def slow(handler: Handler) -> None:
    with contextlib.suppress(OSError):
        for _ in range(200):
            handler.wfile.write(b"H")
            time.sleep(0.05)


def trickling(handler: Handler) -> None:
    length = b"Content-Length: 999\r\n" if "999" in handler.path else b""
    handler.wfile.write(b"HTTP/1.0 200 OK\r\n" + length + b"\r\n")
    slow(handler)


def endless(handler: Handler) -> None:
    handler.wfile.write(b"HTTP/1.0 200 OK\r\n\r\n")
    with contextlib.suppress(OSError):
        while True:
            handler.wfile.write(b"x" * 65_536)


PAGE = b"<!doctype html><h1>Ship</h1><p>Caf\xe9.</p>"
PAGES: dict[str, Reply | Callable[[Handler], None]] = {
    "/": (200, {"Content-Type": "text/html; charset=iso-8859-1"}, b"<meta charset=latin1>" + PAGE),
    "/a.pdf": (200, {"Content-Type": "application/octet-stream"}, made.pdf([["One."]])),
    "/latin?x=1": (200, {"Content-Type": "text/plain; charset=latin-1"}, b"caf\xe9"),
    "/notes.md": (200, {"Content-Type": "text/plain"}, b"# Crew\nMarta."),
    "/Z%C3%BCrich%20%41?q=%C3%A9": (200, {"Content-Type": "text/plain"}, b"a town"),
    "/moved": (302, {"Location": "a.pdf"}, b""),
    "/town": (302, {"Location": "/Zürich%20%41?q=é".encode().decode("latin-1")}, b""),
    "/latin": (302, {"Location": "/Z\xfcrich%20%41?q=\xe9"}, b""),
    "/bracket": (302, {"Location": "http://[::1/"}, b""),
    "/round": (301, {"Location": "/round"}, b""),
    "/away": (302, {"Location": "file:///etc/passwd"}, b""),
    "/inside": (302, {"Location": "http://169.254.169.254/latest/"}, b""),
    "/gzip": (200, {"Content-Encoding": "gzip"}, b"\x1f\x8b"),
    "/short": (200, {"Content-Length": "100"}, b"some"),
    "/large": (200, {"Content-Length": "100000000000"}, b""),
    "/binary": (200, {"Content-Type": "text/plain"}, b"a\0b"),
    "/slow": slow,
    "/trickling": trickling,
    "/trickling-999": trickling,
    "/endless": endless,
}


@contextlib.contextmanager
def serving(context: ssl.SSLContext | None = None) -> Iterator[int]:
    """The port of a server, with TLS where there is a context."""
    Handler.pages = PAGES
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    if context is not None:
        server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    yield server.server_address[1]
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture(scope="module")
def web() -> Iterator[str]:
    with serving() as port:
        yield f"http://127.0.0.1:{port}"


INSIDE = Bounds(private=True, seconds=5.0)


@pytest.mark.parametrize(
    ("path", "parts", "text"),
    [
        ("/", [", Ship"], "Ship\n\nCafé.\n\n"),
        ("/a.pdf", [", page 1"], "One.\n\n"),
        ("/moved", [", page 1"], "One.\n\n"),
        ("/latin?x=1", [""], "café"),
        ("/notes.md", [", Crew"], "# Crew\nMarta."),
        ("/Zürich %41?q=é", [""], "a town"),
        ("/Z%C3%BCrich%20%41?q=%C3%A9", [""], "a town"),
        ("/town", [""], "a town"),
        ("/latin", [""], "a town"),
    ],
)
def test_an_address_is_read_as_what_it_holds(web: str, path: str, parts: list[str], text: str) -> None:
    found = Finder(addresses=INSIDE).find([web + path])
    assert "".join(found.pieces()) == text
    assert found.characters == len(text)
    assert sources(found) == [f"{web}{path}{part}" for part in parts]


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("/nowhere", "cannot be read: its server says 404 Not Found"),
        ("/round", "leads on more than 5 times: give the last address"),
        ("/away", "file:///etc/passwd is no address of the web: use http:// or https://"),
        ("/gzip", "comes compressed, though that was not asked for"),
        ("/short", "incompleteread|ended before it was whole"),
        ("/large", "has more than 134 MB: download it"),
        ("/binary", "is binary, not text: byte 1 is NUL"),
        ("/slow", "within 1 s: download it with another program"),
        ("/trickling", "within 1 s: download it with another program"),
        ("/trickling-999", "within 1 s: download it with another program"),
        ("/bracket", "cannot read http://127.0.0.1:.*: invalid ipv6 url"),
    ],
)
def test_what_an_address_does_wrong_is_one_line(web: str, path: str, says: str) -> None:
    started = time.monotonic()
    with pytest.raises(InputError, match=says) as caught:
        Finder(addresses=Bounds(private=True, seconds=1.0)).find([web + path])
    assert "\n" not in str(caught.value)
    assert time.monotonic() - started < 4


def test_an_answer_without_an_end_is_cut(web: str) -> None:
    out = io.BytesIO()
    with pytest.raises(InputError, match="has more than 1 MB"):
        fetch(f"{web}/endless", out, Bounds(private=True, most_bytes=1_000_000))
    assert out.tell() < 1_200_000


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:9/",
        "http://localhost:9/",
        "http://[::1]:9/",
        "http://10.0.0.1/",
        "http://192.168.1.1/",
        "http://169.254.169.254/latest/meta-data",
        "http://0.0.0.0/",
        "http://[::ffff:127.0.0.1]/",
        "http://[64:ff9b::7f00:1]/",
        "http://2130706433/",
        "http://0x7f.1/",
        "http://[64:ff9b:1::7f00:1]/",
        "http://[64:ff9b:1::808:808]/",
        "http://[::127.0.0.1]/",
        "http://[::8.8.8.8]/",
        "http://[::ffff:0:7f00:1]/",
        "http://[::ffff:0:808:808]/",
        "http://[fec0::1]/",
        "http://[feff::1]/",
        "http://192.0.0.9/",
        "http://192.0.0.170/",
        "http://[64:ff9b::c000:9]/",  # 192.0.0.9, wrapped
        "http://[::ffff:192.0.0.9]/",
        "http://224.0.0.1/",
        "http://[64:ff9b::e000:1]/",
    ],
)
def test_a_private_address_is_not_asked(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetching.socket, "create_connection", _unasked)
    with pytest.raises(InputError, match=r"an address of a private network: give `allow_private`"):
        Finder().find([url])


def _unasked(address: tuple[str, int], **_: float) -> socket.socket:
    raise AssertionError(f"{address} was asked")


@pytest.mark.parametrize(
    "url", ["http://8.8.8.8/", "http://[2606:4700::1111]/", "http://[64:ff9b::808:808]/"]
)
def test_a_public_address_is_asked(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetching.socket, "create_connection", _unasked)
    with pytest.raises(AssertionError, match="was asked"):
        Finder().find([url])


def resolving(monkeypatch: pytest.MonkeyPatch, *addresses: str) -> None:
    """Let ship.example be at these addresses."""
    real = socket.getaddrinfo

    def resolved(host: str, port: int, *rest: int, **more: int) -> list[tuple[object, ...]]:
        hosts = addresses if host == "ship.example" else (host,)
        return [entry for one in hosts for entry in real(one, port, *rest, **more)]

    monkeypatch.setattr(fetching.socket, "getaddrinfo", resolved)


def test_each_address_of_a_host_is_tried(web: str, monkeypatch: pytest.MonkeyPatch) -> None:
    port, out = web.rpartition(":")[2], io.BytesIO()
    resolving(monkeypatch, "127.0.0.2", "127.0.0.1")
    fetch(f"http://ship.example:{port}/notes.md", out, INSIDE)
    assert out.getvalue() == b"# Crew\nMarta."
    resolving(monkeypatch, "127.0.0.2", "127.0.0.3")
    with pytest.raises(InputError, match=r"cannot read http://ship.example:\d+/: connection refused"):
        fetch(f"http://ship.example:{port}/", out, INSIDE)


def test_addresses_that_do_not_answer_share_the_time(web: str, monkeypatch: pytest.MonkeyPatch) -> None:
    real, asked, out = socket.create_connection, list[tuple[str, float]](), io.BytesIO()

    def silent(address: tuple[str, int], timeout: float) -> socket.socket:
        asked.append((address[0], timeout))
        if address[0] == "127.0.0.2":
            raise TimeoutError
        return real(address, timeout)

    monkeypatch.setattr(fetching.socket, "create_connection", silent)
    resolving(monkeypatch, "127.0.0.2", "127.0.0.1")
    fetch(f"http://ship.example:{web.rpartition(':')[2]}/notes.md", out, INSIDE)
    assert [one for one, _ in asked] == ["127.0.0.2", "127.0.0.1"]
    assert asked[0][1] <= INSIDE.seconds / 2 < asked[1][1]


def test_all_addresses_of_a_host_are_checked_before_one_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetching.socket, "create_connection", _unasked)
    resolving(monkeypatch, "93.184.216.34", "10.0.0.1")
    with pytest.raises(InputError, match=r"ship.example is at 10\.0\.0\.1, an address of a private network"):
        Finder().find(["http://ship.example/"])


def test_a_page_cannot_lead_to_a_private_address(web: str, monkeypatch: pytest.MonkeyPatch) -> None:
    real, here = socket.getaddrinfo, web.rpartition(":")[2]

    def resolved(host: str, port: int, *rest: int, **more: int) -> list[tuple[object, ...]]:
        found = real("127.0.0.1" if host == "ship.example" else host, port, *rest, **more)
        return [(*entry[:4], ("93.184.216.34", port)) for entry in found] if host == "ship.example" else found

    connect = socket.create_connection
    asked: list[str] = []

    def connected(address: tuple[str, int], **more: float) -> socket.socket:
        asked.append(address[0])
        return connect(("127.0.0.1", int(here)), **more)

    monkeypatch.setattr(fetching.socket, "getaddrinfo", resolved)
    monkeypatch.setattr(fetching.socket, "create_connection", connected)
    with pytest.raises(InputError, match=r"169\.254\.169\.254, an address of a private network"):
        Finder().find(["http://ship.example/inside"])
    assert asked == ["93.184.216.34"]  # the address that was checked, and nothing after it


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("http://user:pass@host.example/", "an address with a password in it is not asked"),
        ("http://", "is no address of the web"),
        ("http://host:port/", "is no address"),
        ("http://no-such-host.invalid/", "there is no host no-such-host.invalid"),
        ("https://127.0.0.1:1/", r"cannot read https://127.0.0.1:1/: connection refused"),
    ],
)
def test_an_address_that_is_none(url: str, says: str) -> None:
    with pytest.raises(InputError, match=says):
        fetch(url, io.BytesIO(), INSIDE)


def test_a_server_without_the_web_says_so(web: str) -> None:
    with pytest.raises(InputError, match="addresses of the web are not read here"):
        Finder(addresses=None).find([web])


STRANGER = Path(__file__).parents[2] / "data" / "stranger.pem"  # signed by itself, for 127.0.0.1


def test_a_stranger_s_certificate_is_not_trusted(web: str, monkeypatch: pytest.MonkeyPatch) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(STRANGER)
    with serving(context) as port:
        for host, why in (("127.0.0.1", "self.signed certificate"), ("localhost", "self.signed|mismatch")):
            with pytest.raises(InputError, match=rf"its certificate is not trusted \({why}"):
                fetch(f"https://{host}:{port}/notes.md", io.BytesIO(), INSIDE)
        monkeypatch.setenv("SSL_CERT_FILE", str(STRANGER))  # no stranger now
        fetch(f"https://127.0.0.1:{port}/notes.md", out := io.BytesIO(), INSIDE)
        assert out.getvalue() == b"# Crew\nMarta."
        with pytest.raises(InputError, match=r"its certificate is not trusted \(Hostname mismatch"):
            fetch(f"https://localhost:{port}/notes.md", io.BytesIO(), INSIDE)
    with pytest.raises(InputError, match="cannot read https://127"):  # no TLS there
        fetch(web.replace("http", "https"), io.BytesIO(), INSIDE)
