"""The code of the documentation, run page by page as a person would: one folder, real processes."""

from __future__ import annotations

import contextlib
import gc
import io
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from doc_pages import DOCS, Block, blocks

NAMED = {path.name: [block for block in blocks(path) if block.runs] for path in sorted(DOCS.glob("*.md"))}
TOY = {"adding-a-policy.md", "how-it-works.md"}  # no model is loaded there
PAGES = [
    pytest.param(name, marks=[] if name in TOY else pytest.mark.model)
    for name, found in NAMED.items()
    if found
]
PORTS = re.compile(r"(?<=127\.0\.0\.1:)\d+|(?<=--port )\d+")
READY_S = 240


class Reader:
    """Somebody who tries everything on a page."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ports: dict[str, str] = {}
        self.servers: list[subprocess.Popen[bytes]] = []
        self.names: dict[str, Any] = {"__name__": "docs"}
        tools = Path(sys.executable).parent
        self.environment = {
            **os.environ,
            "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}",
            "INFINIPOT_STORE": str(folder / "store"),
            "INFINIPOT_PORT": self.port("8000"),
        }

    def port(self, written: str) -> str:
        """A free port in place of the one a page names."""
        if written not in self.ports:
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", 0))
                self.ports[written] = str(probe.getsockname()[1])
        return self.ports[written]

    def try_out(self, block: Block) -> None:
        code = PORTS.sub(lambda match: self.port(match[0]), block.code)
        if block.stays:
            self.start(code, block)
            return
        said = self.python(code, block) if block.language == "python" else self.shell(code, block)
        assert block.prints in said, f"{block.where} printed no '{block.prints}':\n{said}"

    def shell(self, code: str, block: Block) -> str:
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", code],
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=500,
        )
        assert done.returncode == 0, f"{block.where}:\n{done.stdout}{done.stderr}"
        return done.stdout

    def python(self, code: str, block: Block) -> str:
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            exec(compile("\n" * block.line + code, block.page, "exec", dont_inherit=True), self.names)
        return said.getvalue()

    def start(self, code: str, block: Block) -> None:
        """Start a server, and wait until it is ready."""
        named = PORTS.search(code)
        address = f"http://127.0.0.1:{named[0] if named else self.port('8000')}/ready"
        log = self.folder / f"server-{len(self.servers)}.log"
        with log.open("wb") as out:
            self.servers.append(
                subprocess.Popen(
                    ["bash", "-euo", "pipefail", "-c", code],
                    cwd=self.folder,
                    env=self.environment,
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=out,
                    start_new_session=True,
                )
            )
        until = time.monotonic() + READY_S
        while not self._answers(address):
            hopeless = self.servers[-1].poll() is not None or time.monotonic() > until
            assert not hopeless, f"{block.where}:\n{log.read_text()}"
            time.sleep(0.5)

    def _answers(self, address: str) -> bool:
        keys = self.folder / "keys.txt"
        headers = {"X-API-Key": keys.read_text().strip()} if keys.is_file() else {}
        try:
            with urllib.request.urlopen(urllib.request.Request(address, headers=headers), timeout=10):
                return True
        except OSError:
            return False

    def leave(self) -> None:
        """Close what was started."""
        self.names.clear()
        gc.collect()
        for server in self.servers:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(server.pid, signal.SIGTERM)
        for server in self.servers:
            try:
                server.wait(timeout=60)
            except subprocess.TimeoutExpired:
                os.killpg(server.pid, signal.SIGKILL)
                server.wait()


@pytest.fixture
def reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Reader]:
    """In an empty folder, with the text that `index.md` makes: other pages use it too."""
    monkeypatch.chdir(tmp_path)
    one = Reader(tmp_path)
    (text,) = [block for block in NAMED["index.md"] if "> logbook.txt" in block.code]
    one.try_out(text)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # examples need not close their clients
        yield one
        one.leave()


@pytest.mark.timeout(900)
@pytest.mark.parametrize("page", PAGES)
def test_everything_on_the_page_works(page: str, reader: Reader) -> None:
    for block in NAMED[page]:
        reader.try_out(block)
