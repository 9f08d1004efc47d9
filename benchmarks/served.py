"""`infinipot serve` with options as a person types them, as a process whose memory is watched."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from pathlib import Path

from load import Server


class Served(Server):
    """A server by its command line; `more` are options that are not worth keeping in a result."""

    def __init__(self, arguments: list[str], folder: Path, *more: str, look: Path | None = None) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        begun = ["-m", "infinipot.cli.main"]
        if look is not None:  # the same, which writes down there what it holds
            begun = [str(Path(__file__).parent / "serving" / "looked_into.py"), str(look)]
        command = [
            sys.executable,
            *begun,
            "serve",
            "--port",
            str(self.port),
            "--store",
            str(folder / "pots"),
            *more,
            *arguments,
        ]
        self.command = ["infinipot", "serve", *arguments]
        self.log = (folder / "server.log").open("w")
        self.process = subprocess.Popen(command, stdout=self.log, stderr=self.log)
        self.resident: list[tuple[float, int]] = []
        self.files: list[tuple[float, int]] = []
        self.held: list[int] = []
        self._watching = threading.Event()
