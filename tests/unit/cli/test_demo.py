"""`infinipot demo` with a tiny model: what it shows, not whether the answers are right."""

from __future__ import annotations

import json

from commands import run


def test_the_demo_reads_asks_and_compares(model: str) -> None:
    words = ["--model", model, "--days", "30", "--capacity", "192"]
    done = run("demo", *words)
    assert done.returncode == 0, done.stderr.decode()
    assert b"logbook" in done.stdout + done.stderr
    told = json.loads(run("demo", *words, "--json").stdout)
    assert told["capacity"] == 192
    assert told["tokens_read"] > 192
