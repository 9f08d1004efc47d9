"""The page's files as files, and its pure functions: under node, or in a browser where there is no node."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from e2e.browsers import CHROMIUM, NODE
from e2e.fake_server import PAGE, FakeServer, serving

javascript = pytest.mark.timeout(120) if NODE else pytest.mark.browser
PIECES = """
async function* pieces(all) { for (const one of all) yield one; }
async function gather(all) {
  const out = [];
  for await (const one of api.events(pieces(all))) out.push(one);
  return out;
}
"""


def run(body: str, folder: Path) -> Any:
    """Return what a function's body returns that sees the modules `text` and `api`."""
    load = "const [text, api] = await Promise.all([import('{0}/text.js'), import('{0}/api.js')]);"
    if NODE:
        shutil.copytree(PAGE, folder / "page")
        (folder / "page" / "package.json").write_text('{"type": "module"}')
        script = f"const all = async () => {{{load.format('./page')}{PIECES}{body}}};"
        (folder / "run.mjs").write_text(script + "console.log(JSON.stringify(await all()));")
        done = subprocess.run([NODE, "run.mjs"], cwd=folder, capture_output=True, text=True, check=True)
        return json.loads(done.stdout)
    from playwright.sync_api import sync_playwright

    with serving(FakeServer()) as address, sync_playwright() as playwright:
        page = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"]).new_page()
        page.goto(address)
        return page.evaluate(f"async () => {{{load.format('/page')}{PIECES}{body}}}")


@javascript
@pytest.mark.parametrize(
    ("title", "name"),
    [
        ("Moby Dick; or, The Whale", "moby-dick-or-the-whale"),
        ("  Élégie über Öl  ", "elegie-uber-ol"),
        ("../../etc/passwd", "etc-passwd"),
        ("鯨", "pot"),
        ("", "pot"),
        ("CON", "con-pot"),
        ("log.pdf", "log"),
        ("Version 1.2", "version-1-2"),
        (".txt", "txt"),
        ("x" * 63 + " y", "x" * 63),
    ],
)
def test_a_title_becomes_a_name_the_store_accepts(title: str, name: str, tmp_path: Path) -> None:
    assert run(f"return text.nameFrom({json.dumps(title)})", tmp_path) == name


@javascript
def test_a_taken_name_gets_the_next_free_number(tmp_path: Path) -> None:
    long = "x" * 64
    asked = "text.unused('a', new Set(['a', 'a-2'])), text.unused('b', new Set())"
    body = f"return [{asked}, text.unused('{long}', new Set(['{long}']))]"
    assert run(body, tmp_path) == [
        "a-3",
        "b",
        "x" * 62 + "-2",
    ]


@javascript
def test_numbers_are_written_for_people(tmp_path: Path) -> None:
    body = """const {ago, bytes, duration, many, times, titleOf} = text; const day = "2026-01-01T00:0";
      return [bytes(999), bytes(1000), bytes(1_260_000_000), bytes(241e6), duration(0.2), duration(200),
      duration(7500), duration(NaN), times(0), times(1), times(1200), many(1, "token"), many(2048, "token"),
      ago(100, 100_000), ago(0, 125 * 60_000), ago(`${day}0:00Z`, Date.parse(`${day}5:00Z`)),
      titleOf("a/b/Moby Dick.txt"), titleOf(".env"), text.fileName("a/b/Moby Dick.txt"),
      text.full(1100, 2048), text.working(0, 2, 0), text.working(1, 2, 0), text.working(2, 2, 3)]"""
    assert run(body, tmp_path) == [
        *("999 B", "1.0 kB", "1.3 GB", "241 MB", "1 s", "3 min 20 s", "2 h 5 min", "…", "never", "once"),
        *("1,200 times", "1 token", "2,048 tokens", "just now", "2 h ago", "5 min ago", "Moby Dick", ".env"),
        *("Moby Dick.txt", "pot 54% full", "free", "at work on 1 of at most 2"),
        "at work on 2 of at most 2, 3 waiting",
    ]


@javascript
def test_a_place_in_the_queue_in_words(tmp_path: Path) -> None:
    body = """return [[1, 0.2], [1, 12], [2, 0], [5, 90]].map(([position, expected_wait_s]) =>
      text.queued({position, expected_wait_s}))"""
    assert run(body, tmp_path) == [
        *("Next in line", "Next in line, about 12 s", "1 before you", "4 before you, about 1 min 30 s"),
    ]


@javascript
@pytest.mark.parametrize(
    ("told", "question", "found"),
    [
        ("Two keepers kept it. The bookkeeper left.", "What is the keeper's name?", ["keepers"]),
        ("A (b+)* c", "(b+)* [", []),
        ("他喜欢鲸鱼和大海", "鲸鱼在哪里", ["鲸鱼"]),
        ("Élan, élans", "élan?", ["Élan", "élans"]),
        ("nothing", "", []),
    ],
)
def test_the_words_of_a_question_are_found_in_a_text(
    told: str, question: str, found: list[str], tmp_path: Path
) -> None:
    parts = run(f"return text.marked({json.dumps(told)}, {json.dumps(question)})", tmp_path)
    assert "".join(part for part, _ in parts) == told
    assert [part for part, marked in parts if marked] == found


@javascript
def test_events_arrive_whole_however_they_are_cut(tmp_path: Path) -> None:
    stream = (
        ': keep-alive\r\n\r\nevent: progress\r\ndata: {"a":1}\r\n\r\ndata: one\ndata: two\n\ndata:[DONE]\n\n'
    )
    wanted = [
        {"event": "progress", "data": '{"a":1}'},
        {"event": "message", "data": "one\ntwo"},
        {"event": "message", "data": "[DONE]"},
    ]
    sent = json.dumps(stream)
    ways = (f"[{sent}]", f"[...{sent}]", f"{sent}.match(/[^]{{1,3}}/g)")
    body = ", ".join(f"await gather({way})" for way in ways)
    assert run(f"return [{body}]", tmp_path) == [wanted] * 3


def test_nothing_is_fetched_from_elsewhere_and_nothing_is_inline() -> None:
    for path in PAGE.iterdir():
        source = path.read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")
        assert not re.search(r"https?:|//[a-z]+\.", source), path.name
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(", source), (
            path.name
        )
        assert len(source.splitlines()) <= 300, path.name
    index = (PAGE / "index.html").read_text(encoding="utf-8")
    assert not re.search(r"<style|\sstyle=|\son[a-z]+=|<script(?![^>]*src=)", index)
