"""Files on their way in and out: hashed and checked as they come, never in memory, gone with the request."""

import asyncio
import errno
import hashlib
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import IO

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Message, Receive, Scope, Send

from infinipot.errors import StoreError
from infinipot.server.http import streams
from infinipot.server.http.errors import ApiError
from infinipot.server.http.service import Caller, Service
from infinipot.server.http.temporary import temporary_folder
from infinipot.text.convert import isolated
from infinipot.text.convert.kinds import CONVERTED, HEAD, Kind, kind_of_upload
from infinipot.text.files import Decoder

BLOCK = 2**18  # bytes written at once, away from the event loop
SENT = 2**16  # bytes sent at once: a client that takes fewer in SEND_S is let go
UPLOAD = "the upload"
CONVERSION = isolated.Limits(seconds=120, memory=2**30)  # of a stranger's document


class Upload:
    """A file that is received: hashed as its bytes come, and checked to be UTF-8 if the file is a text.

    What a text is, its first bytes, its type and its title tell; a document is made text once it is whole.
    """

    def __init__(self, path: Path, text: bool, mime: str = "", title: str = "") -> None:
        self.path, self.bytes = path, 0
        self.digest, self._decoder = hashlib.sha256(), Decoder(UPLOAD) if text else None
        self.kind: Kind = "text"
        self.parts: list[isolated.Part] = []  # pages, chapters or sections of a document
        self._told = (mime, title)

    def take(self, file: IO[bytes], data: bytes, last: bool = False) -> None:
        """Write some bytes."""
        if self._decoder is not None and not self.bytes:
            self.kind = kind_of_upload(data[:HEAD], UPLOAD, *self._told)
            self._decoder = None if self.kind in CONVERTED else self._decoder
        if self._decoder is not None:
            self._decoder.push(data)
            if last:
                self._decoder.end()
        self.digest.update(data)
        self.bytes += file.write(data)
        file.flush()  # so that a full disk is noticed here

    def convert(self) -> None:
        """Make a document text, in a process of its own; the text takes the document's place."""
        text = self.path.with_name("text")
        with self.path.open("rb") as document, text.open("wb") as out:
            self.parts = isolated.convert(self.kind, document, UPLOAD, out, CONVERSION)
        self.path.unlink()
        self.path, self.bytes = text, text.stat().st_size
        with text.open("rb") as file:
            self.digest = hashlib.file_digest(file, "sha256")


@asynccontextmanager
async def received(request: Request, service: Service, text: bool) -> AsyncIterator[Upload]:
    """Take in the body; of a text, every byte is checked to be UTF-8 before the next is read."""
    async with _folder(service.settings.spool) as folder:
        mime = request.headers.get("content-type", "").lower().partition(";")[0].strip()
        upload = Upload(folder / "upload", text, mime, request.query_params.get("title", ""))
        with service.uploads.place(request.state.tenant):
            await _receive(request, upload)
            if upload.kind in CONVERTED:
                await asyncio.to_thread(upload.convert)
        yield upload


class Download(StreamingResponse):
    """A file that is sent block by block; it is closed, and its place is free, however that ends."""

    def __init__(self, file: IO[bytes], headers: dict[str, str], held: ExitStack) -> None:
        self._held = held
        blocks = iter(partial(file.read, SENT), b"")
        super().__init__(blocks, headers=headers, media_type="application/octet-stream")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the file to its end, or its client's; one that takes nothing is let go."""

        async def in_time(message: Message) -> None:
            await asyncio.wait_for(send(message), streams.SEND_S)

        with self._held, suppress(TimeoutError):
            await super().__call__(scope, receive, in_time)


async def exported(caller: Caller, name: str) -> Response:
    """Return a pot's file; the copy that is sent is gone from the disk before its first byte is."""
    with ExitStack() as held:
        held.enter_context(caller.service.downloads.place(caller.tenant))
        async with _folder(caller.service.settings.spool) as temporary:
            path = temporary / "pot"
            try:
                await asyncio.to_thread(caller.pots.export, name, path)
            except StoreError:
                if not path.exists():
                    raise  # else the pot is whole, and its archive, which is not sent, is not
            file, size = held.enter_context(path.open("rb")), path.stat().st_size
        headers = {"Content-Length": str(size), "Content-Disposition": f'attachment; filename="{name}.pot"'}
        return Download(file, headers, held.pop_all())


@asynccontextmanager
async def _folder(parent: Path) -> AsyncIterator[Path]:
    folder = temporary_folder(parent)
    path = await asyncio.to_thread(folder.__enter__)
    try:
        yield path
    finally:
        await asyncio.shield(asyncio.to_thread(folder.__exit__, None, None, None))


async def _receive(request: Request, upload: Upload) -> None:
    waiting = bytearray()
    try:
        with upload.path.open("wb") as file:
            async for part in request.stream():
                waiting += part
                if len(waiting) >= BLOCK:
                    await asyncio.to_thread(upload.take, file, bytes(waiting))
                    waiting.clear()
            await asyncio.to_thread(upload.take, file, bytes(waiting), last=True)
    except ClientDisconnect:
        raise ApiError(499, "the client left before the upload was whole") from None
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
        said = "the server's disk is full: try again later" if full else "the server cannot keep uploads now"
        raise ApiError(507, said, code="no_room") from error
