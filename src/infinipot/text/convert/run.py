"""A conversion as its own process runs it: a document on standard input, its text on standard output.

On standard error goes one JSON document a line: [name, characters] after each part of the text, {"note": ...}
for what a person must know, {"error": ...} and {"missing": ...} for what ends the conversion.
"""

import json
import sys
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import BinaryIO

from infinipot.common.atomic_files import reason
from infinipot.errors import ConfigError, InputError
from infinipot.text.convert import html, pdf, zipped
from infinipot.text.convert.isolated import NO_MEMORY
from infinipot.text.convert.outline import Note
from infinipot.text.files import Piece, label

CONVERTERS: dict[str, Callable[[BinaryIO, str], Iterator[str]]] = {
    "pdf": pdf.convert,
    "html": html.convert,
    "zip": zipped.convert,
}
MOST_TEXT = 512 * 2**20  # bytes that a document's text may have
MOST_PARTS = 100_000  # that have a name of their own; the last one has the rest
_BROKEN = (zipfile.BadZipFile, zlib.error, OSError, EOFError, NotImplementedError, RuntimeError, ValueError)


def pieces(kind: str, stream: BinaryIO, name: str) -> Iterator[str]:
    """Yield the text of a document; whatever a library finds wrong with it becomes an InputError."""
    empty = True
    try:
        for piece in CONVERTERS[kind](stream, name):
            empty = empty and (isinstance(piece, Note) or not piece.strip())
            yield piece
    except _BROKEN as error:
        why = label(str(error) or type(error).__name__)
        raise InputError(f"{name} is damaged ({why})", remedy="open it and save it again") from error
    if empty:
        raise InputError(f"{name} has no text in it")


def write(kind: str, stream: BinaryIO, name: str, out: BinaryIO, tell: Callable[[object], None]) -> None:
    """Write a document's text, and tell of its parts as they end."""
    part, length, size, count = "", 0, 0, 1
    for piece in pieces(kind, stream, name):
        if isinstance(piece, Note):
            tell({"note": piece})
            continue
        if isinstance(piece, Piece) and count < MOST_PARTS:
            if length:
                tell([part, length])
                count += 1
            part, length = piece.source, 0
        data = piece.encode()
        length, size = length + len(piece), size + len(data)
        if size > MOST_TEXT:
            problem = f"{name} has more than {MOST_TEXT / 1e6:,.0f} MB of text in it"
            raise InputError(problem, remedy="split it, or save its text as a .txt file")
        out.write(data)
    out.flush()
    tell([part, length])


def bound(seconds: int, memory: int) -> None:
    """Bound the time and memory of this process, where the system can; lower limits of its own stay."""
    try:
        import resource
    except ImportError:  # Windows
        return
    wanted = {
        resource.RLIMIT_CPU: (seconds, seconds + 5),
        resource.RLIMIT_AS: (memory, memory),
        resource.RLIMIT_CORE: (0, 0),
    }
    for kind, (soft, hard) in wanted.items():
        most = resource.getrlimit(kind)[1]
        hard = hard if most == resource.RLIM_INFINITY else min(hard, most)
        with suppress(ValueError, OSError):  # macOS bounds no memory
            resource.setrlimit(kind, (min(soft, hard), hard))


def main() -> int:
    """Convert standard input."""
    kind, name, seconds, memory = sys.argv[1:]
    bound(int(seconds), int(memory))

    def tell(what: object) -> None:
        print(json.dumps(what), file=sys.stderr, flush=True)  # noqa: T201  read by `isolated`

    try:
        write(kind, sys.stdin.buffer, name, sys.stdout.buffer, tell)
    except InputError as error:
        tell({"error": error.problem, "remedy": error.remedy})
    except ConfigError as error:  # a package that is missing
        tell({"missing": error.problem, "remedy": error.remedy})
    except OSError as error:  # of what is written; of what is read it is an InputError
        tell({"error": f"cannot write the text of {name}", "remedy": reason(error)})
    except MemoryError:
        return NO_MEMORY
    else:
        return 0
    return 2


if __name__ == "__main__":
    sys.exit(main())
