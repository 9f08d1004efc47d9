"""What a shell offers after Tab."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from infinipot.cli.completion import NAMES, completing


def offered(line: str) -> list[str]:
    """The words that bash would show, by the protocol of the script that --show-completion prints."""
    script = "import sys; sys.argv[0] = 'infinipot'; from infinipot.cli.main import run; run()"
    count = str(len(line.split()) - (not line.endswith(" ")))
    given = {"_INFINIPOT_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": count}
    done = subprocess.run(
        [sys.executable, "-c", script], env={**os.environ, **given}, capture_output=True, text=True
    )
    assert done.stderr == ""
    return done.stdout.split()


def test_commands_options_and_values_are_offered() -> None:
    assert offered("infinipot mo") == ["models"]
    assert "--max-new-tokens" in offered("infinipot ask --max")
    assert offered("infinipot ask --model qw") == ["qwen2.5-coder-1.5b"]
    assert offered("infinipot ask --recipe h2") == ["h2o", "h2o-half"]
    assert "chat" in offered("infinipot ask --format ")


def test_a_store_that_fails_offers_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails() -> list[str]:
        raise OSError

    monkeypatch.setitem(NAMES, "pot", fails)
    assert completing("pot")("") == []  # type: ignore[misc]
    assert completing("capacity") is None
