"""The hub first, the wheels where there is none: with a hub of our own on this machine."""

from __future__ import annotations

import hashlib
import http.server
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from huggingface_hub import constants

from infinipot.models import catalog, download
from infinipot.models.download import Progress
from toy_release import Seller, Shop

DATA = bytes(range(256)) * 20_000
PLACE = ("org/toy", "toy.gguf")


@dataclass
class Hub:
    """What a hub has, what it says of it, and what it was asked."""

    data: bytes = DATA
    says: str = hashlib.sha256(DATA).hexdigest()
    stops_after: int | None = None  # bytes, after which the line goes dead
    asked: list[str] = field(default_factory=list)


def handler(fake: Hub) -> type[http.server.BaseHTTPRequestHandler]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self.begin(200, fake.data)

        def do_GET(self) -> None:
            start = int(self.headers.get("Range", "bytes=0-").removeprefix("bytes=").partition("-")[0])
            self.begin(206 if start else 200, fake.data[start:])
            self.wfile.write(fake.data[start : fake.stops_after])

        def begin(self, code: int, body: bytes) -> None:
            if self.path.startswith("/org/"):  # the client asks for other things too
                fake.asked.append(f"{self.command} {self.path} {self.headers.get('Range', '')}".strip())
            self.send_response(code)
            told = {"ETag": '"x"', "X-Linked-ETag": f'"{fake.says}"', "X-Linked-Size": str(len(fake.data))}
            for name, value in {**told, "X-Repo-Commit": "a" * 40, "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    return Handler


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    found = Hub()
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler(found))
    server.daemon_threads = True
    point_at(f"http://127.0.0.1:{server.server_address[1]}", monkeypatch)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    yield found
    server.shutdown()
    server.server_close()
    thread.join()


def point_at(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr(constants, "ENDPOINT", address)
    template = address + "/{repo_id}/resolve/{revision}/{filename}"
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)


@pytest.fixture
def release(sell: Seller) -> catalog.Release:
    return replace(sell(DATA), hub=PLACE)


def run(release: catalog.Release, folder: Path) -> list[Progress]:
    steps = list(download.fetch(release, folder))
    assert (folder / "model.gguf").read_bytes() == DATA
    assert {path.name for path in folder.iterdir()} <= {"model.gguf", "hub.half"}
    return steps


def test_the_hub_is_asked_first(fake: Hub, shop: Shop, release: catalog.Release, tmp_path: Path) -> None:
    steps = run(release, tmp_path / "f")
    assert steps[0] == Progress("asking the hub", 0, 0)
    assert {step.stage for step in steps} == {"asking the hub", "downloading", "joining"}
    assert not shop.served
    path = "/org/toy/resolve/main/toy.gguf"
    assert fake.asked == [f"HEAD {path}", f"GET {path} bytes=0-"]


def test_another_file_is_not_even_fetched(
    fake: Hub, shop: Shop, release: catalog.Release, tmp_path: Path
) -> None:
    fake.says = "0" * 64
    run(release, tmp_path / "f")
    assert [line.split()[0] for line in fake.asked] == ["HEAD"]
    assert sum(shop.served.values()) == 2


def test_a_hub_that_lies_is_found_out(
    fake: Hub, shop: Shop, release: catalog.Release, tmp_path: Path
) -> None:
    fake.data = bytes(len(DATA))
    run(release, tmp_path / "f")
    assert sum(shop.served.values()) == 2
    assert not (tmp_path / "f" / "hub.half").exists()


def test_what_was_interrupted_goes_on(
    fake: Hub, shop: Shop, release: catalog.Release, tmp_path: Path
) -> None:
    half = tmp_path / "hub.half"
    fake.stops_after = len(DATA) // 2
    steps = download.from_hub(release, half)
    assert {step.stage for step in steps} == {"asking the hub", "downloading"}
    have = half.stat().st_size
    assert 0 < have <= len(DATA) // 2
    fake.stops_after = None
    list(download.fetch(release, tmp_path))
    assert (tmp_path / "model.gguf").read_bytes() == DATA
    assert fake.asked[-1].endswith(f"bytes={have}-")
    assert not shop.served


def test_no_hub_means_the_wheels_at_once(
    shop: Shop, release: catalog.Release, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    point_at("http://127.0.0.1:9", monkeypatch)  # nothing listens there
    start = time.monotonic()
    steps = list(download.from_hub(release, tmp_path / "hub.half"))
    assert time.monotonic() - start < 2 * download.HUB_TIMEOUT_S
    assert steps == [Progress("asking the hub", 0, 0)]
    run(release, tmp_path / "f")
    assert sum(shop.served.values()) == 2


def test_offline_the_hub_is_not_asked(
    fake: Hub, release: catalog.Release, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert "asking the hub" not in {step.stage for step in run(release, tmp_path / "f")}
    assert not fake.asked


@pytest.mark.parametrize("release", catalog.RELEASES, ids=lambda release: release.alias)
def test_every_release_names_its_place_on_the_hub(release: catalog.Release) -> None:
    assert release.hub is not None
    repository, file = release.hub
    assert repository.count("/") == 1
    assert file.endswith(".gguf")
