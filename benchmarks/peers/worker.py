"""A peer in an interpreter of its own, asked and answered in lines of JSON.

So what it patches, pins or allocates stays there, and it can wait while others are measured.
"""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

from infinipot.errors import ConfigError

SCRIPTS = Path(__file__).parent / "scripts"


class PeerError(Exception):
    """Why a peer has nothing to show, in a few words."""


class Worker:
    """A running script."""

    def __init__(self, python: str, script: str, threads: int | None = None) -> None:
        settings = dict(os.environ)
        for own in (
            "PYTHONPATH",
            "OMP_WAIT_POLICY",
            "GOMP_SPINCOUNT",
        ):  # ours are not for a foreign interpreter
            settings.pop(own, None)
        if threads:
            settings["OMP_NUM_THREADS"] = str(threads)
        self._told = tempfile.TemporaryFile()  # noqa: SIM115 - what it says beside its answers; closed with us
        try:
            self._process = subprocess.Popen(
                [python, str(SCRIPTS / script)],
                bufsize=0,  # else a line could wait in a buffer that `select` does not see
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._told,
                env=settings,
            )
        except OSError as error:
            raise PeerError(f"not installed: {python} does not run ({error.strerror})") from error

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._told):
            if stream is not None:
                stream.close()

    def ask(self, request: dict[str, Any], limit: float) -> dict[str, Any]:
        """Send a line and return the answer; a failure there is a PeerError here."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()
            answer = self._answer(limit)
        except BrokenPipeError:
            answer = self._dead()
        if failed := answer.get("failed"):
            raise PeerError(str(failed))
        return answer

    def _answer(self, limit: float) -> dict[str, Any]:
        """Wait for the next line that is ours; a library may print others."""
        out = self._process.stdout
        assert out is not None
        until = time.monotonic() + limit
        with selectors.DefaultSelector() as ready:
            ready.register(out, selectors.EVENT_READ)
            while ready.select(max(0.0, until - time.monotonic())):
                line = out.readline()
                if not line:
                    return self._dead()
                if line.startswith(b'{"peer"'):
                    found: dict[str, Any] = json.loads(line)
                    return found
        self._process.kill()
        return {"failed": f"stopped after {limit:,.0f} s (--limit)"}

    def _dead(self) -> dict[str, Any]:
        """What its last words were."""
        code = self._process.wait()
        self._told.seek(0)
        words = self._told.read()[-4000:].decode(errors="replace").strip().splitlines()
        last = words[-1].strip() if words else f"ended with {code}"
        if code == -9:
            last = "out of memory" if not words else f"killed: {last}"
        return {"failed": f"not installed: {last}" if "No module named" in last else last[:160]}


def interpreter(option: str, variable: str, otherwise: str = "") -> str:
    """The interpreter a person named, by option or in the environment."""
    found = option or os.environ.get(variable, "") or otherwise
    if option and not Path(option).exists():
        raise ConfigError(f"there is no interpreter {option}")
    return found
