"""The `infinipot` command run in this process: its exit code, and what went to both streams.

A new process imports torch, which takes seconds: tests start one only where the process is the point.
"""

from __future__ import annotations

import io
import os
import sys
import warnings
from subprocess import CompletedProcess
from unittest import mock

from infinipot.cli import main


def run(*words: str, stdin: bytes = b"", **environment: str) -> CompletedProcess[bytes]:
    """Run the command as a shell would."""
    streams = {name: io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for name in ("out", "err")}
    given = io.TextIOWrapper(io.BytesIO(stdin), "utf-8")
    with (
        mock.patch.object(sys, "argv", ["infinipot", *words]),
        mock.patch.object(sys, "stdin", given),
        mock.patch.object(sys, "stdout", streams["out"]),
        mock.patch.object(sys, "stderr", streams["err"]),
        mock.patch.dict(os.environ, environment),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("default")  # a command of its own does not fail on a warning
        code = _exit_code()
    found = [stream.buffer.getvalue() for stream in streams.values()]
    return CompletedProcess(["infinipot", *words], code, *found)


def _exit_code() -> int:
    try:
        main.run()
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    return 0
