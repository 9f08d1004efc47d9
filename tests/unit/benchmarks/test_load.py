"""What the load script counts: lengths, gaps between tokens, the time in which all answer, and its table."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from serving.clients import Visit, ask, share, upload, words
from serving.phases import fair, lengths, many, texts, told
from serving.table import rows
from toy_server import running


def test_lengths_go_from_the_shortest_to_the_longest_and_most_are_short() -> None:
    found = lengths(64, 2048, 2**20)
    assert (found[0], found[-1], len(found)) == (2048, 2**20, 64)
    assert found == sorted(found)
    assert sum(length < 8192 for length in found) > 40
    assert lengths(1, 100, 1000) == [100]


def test_texts_have_their_size_and_differ() -> None:
    one, other = texts([100, 100], 4.0)
    assert len(one) == len(other) == 400
    assert one != other
    assert words(10, 4.4, 1) == words(10, 4.4, 1)


def test_what_is_counted_of_visits() -> None:
    first = Visit(0.0, [1.0, 2.0, 3.0, 4.0], "abcd", 200, tokens=4)
    second = Visit(0.0, [2.5, 3.0, 3.5, 6.0], "abcd", 200, busy=2, tokens=8)
    failed = Visit(0.0, [], "", 503, "no memory")
    found = told([first, second, failed])
    assert (found["requests"], found["answered"], found["tokens"], found["busy_429"]) == (3, 2, 12, 2)
    assert found["errors"] == ["no memory"]
    assert found["gap_max_ms"] == 2500
    assert found["tokens_s"] == pytest.approx(12 / 6)
    assert found["tokens_s_all_answering"] == pytest.approx((2 + 3 * 2) / 1.5)  # from 2.5 to 4.0
    assert found["first_p95_s"] == 2.5
    assert share([], 0.5) is None


def test_the_table_says_what_matters() -> None:
    one: dict[str, Any] = told(
        [Visit(0.0, [1.0, 2.0], "ab", tokens=2), Visit(0.0, [1.5, 2.5], "ab", tokens=2)]
    )
    held = {"most_bytes": 2e9, "memory_bound_bytes": 3e9}
    found = {
        "bench": {"documents": [{"documents": 2, "tokens_s": 8.0}]},
        "many": {"again_1": one, "memory": held},
        "fair": {
            "quiet": one,
            "busy": one,
            "short_questions": one,
            "p95_times_quiet": 1.0,
            "text_read_s": None,
        },
        "whole": {"users": 3, "of": 9},
    }
    table = {(part, what): value for part, what, value in rows(found)}
    assert table["again_1", "share of bench"] == "50 %"
    assert table["fair", "times quiet"] == "1 x"
    assert table["fair", "text read in"] == "-"
    assert table["whole", "whole caches held of 9"] == "3 users"
    assert table["many", "printed bound"] == "3 GB"


def test_clients_of_a_real_server(tmp_path: Path) -> None:
    with running(tmp_path, slots=4, conversations=2, queue=8, recall=0) as server:
        port = int(server.url.rsplit(":", 1)[1])
        found = asyncio.run(many(port, texts([100, 900], 1.0), 8, 1, 60))
        assert found["texts"]["answered"] == found["again_1"]["answered"] == 2, json.dumps(found)
        assert server.state()["conversations"] >= 1
        both = asyncio.run(fair(port, 2, 8, words(16000, 1.0, 3), 0.5, 60))
        assert both["text_error"] == "", both
        assert both["text_read_s"] > 0
        assert both["quiet"]["answered"] > 0
        assert both["apart"]["answered"] > 0
        assert both["busy"]["answered"] > 0
        visit = asyncio.run(ask(port, [{"role": "nobody", "content": "x"}], 4, keep=False))
        assert visit.status == 400
        assert "error" in visit.error
        again = asyncio.run(upload(port, "bad name", b"x"))
        assert again.status >= 400
