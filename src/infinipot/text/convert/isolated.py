"""Conversions in a process of their own: however a document is made, it takes bounded memory and time.

The process gets the document as an open file and knows no path; its text goes to a file of the caller's.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import IO, Any, BinaryIO, cast

from infinipot.errors import ConfigError, InputError
from infinipot.text.convert.kinds import Kind

NO_MEMORY = 3  # how a conversion ends that had too little of it
_SMALLER = "split it, or save its text as a .txt file"


@dataclass(frozen=True)
class Limits:
    """What a conversion may take."""

    seconds: int = 900  # of the processor
    memory: int = 2 * 2**30  # bytes


USUAL = Limits()


@dataclass(frozen=True, slots=True)
class Part:
    """A page, chapter or section of a text: its name, and how many characters it has."""

    name: str
    length: int


def convert(
    kind: Kind,
    document: BinaryIO,
    name: str,
    out: BinaryIO,
    limits: Limits = USUAL,
    tell: Callable[[str], None] = lambda _: None,
) -> list[Part]:
    """Write the text of a document to a file from that file's place on; return its parts.

    `tell` is told what a person must know, such as pages without text.
    """
    bounds = [str(limits.seconds), str(limits.memory)]
    command = [sys.executable, "-P", "-m", "infinipot.text.convert.run", kind, name, *bounds]
    os.lseek(document.fileno(), 0, os.SEEK_SET)
    child = subprocess.Popen(command, stdin=document, stdout=out, stderr=subprocess.PIPE)
    try:
        parts = _listen(cast("IO[bytes]", child.stderr), tell)
        status = child.wait()
    except BaseException:
        child.kill()
        child.wait()
        raise
    finally:
        if child.stderr:
            child.stderr.close()
    if status:
        raise _failed(status, name, limits)
    return parts


def _listen(said: Iterable[bytes], tell: Callable[[str], None]) -> list[Part]:
    parts = []
    for line in said:
        told = _told(line)
        if isinstance(told, list):
            parts.append(Part(*told))
        elif "note" in told:
            tell(told["note"])
        elif "error" in told:
            raise InputError(told["error"], remedy=told["remedy"])
        elif "missing" in told:
            raise ConfigError(told["missing"], remedy=told["remedy"])
    return parts


def _told(line: bytes) -> Any:
    """Return one line of a conversion's as data; what a library prints in between says nothing."""
    try:
        told = json.loads(line)
    except ValueError:
        return {}
    return told if isinstance(told, list | dict) else {}


def _failed(status: int, name: str, limits: Limits) -> InputError:
    if status in (-getattr(signal, "SIGXCPU", 0), -getattr(signal, "SIGKILL", 0)):
        return InputError(f"{name} takes more than {limits.seconds} s to convert", remedy=_SMALLER)
    if status == NO_MEMORY:
        memory = f"{limits.memory / 1e9:.1f} GB of memory"
        return InputError(f"{name} cannot be converted within {memory}", remedy=_SMALLER)
    problem = f"{name} cannot be converted (its converter ended with {status})"
    return InputError(problem, remedy="open it and save it again")
