"""The page of `infinipot inspect` in a real browser: shading, slider, search, two recipes, 100K tokens."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import Browser, Page, expect

from infinipot.inspect.page import write_report
from infinipot.inspect.run import Run
from infinipot.reading.recording import Record

pytestmark = pytest.mark.browser

LONG = 100_000


def run(name: str, count: int, chunk: int, layers: int = 4, heads: int = 2) -> Run:
    """A pot that keeps every eighth token, and of the first layer only those named in the text."""
    dropped = np.zeros((layers, heads, count), np.int32)
    tokens = np.arange(chunk, count + 1, chunk, dtype=np.int32)
    cycle = np.arange(count) // chunk + 1
    dropped[:] = np.where((np.arange(count) % 8 == 0) | (cycle > len(tokens)), 0, cycle)
    dropped[1:, :, 16] = len(tokens)  # held by the first layer alone, in the end
    pieces = tuple(f"\n\nword{n}" if n % 50 == 0 else f" word{n}" for n in range(count))
    novelty = np.ones(count, np.float16)
    ids = np.arange(count, dtype=np.int32)
    kept = Record(
        tuple(range(layers)), tokens, dropped, novelty, (None,) * len(tokens), ids, pieces, {"name": name}
    )
    return Run(name, kept, f"{name} says & means <it>", 1.0, 0)


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A tab without a network; whatever it complains about fails the test."""
    context = browser.new_context(offline=True, viewport={"width": 1300, "height": 900})
    tab, said = context.new_page(), []
    tab.on("console", lambda message: said.append(message.text))
    tab.on("pageerror", lambda error: said.append(str(error)))
    tab.on("request", lambda request: request.url.startswith(("file:", "data:")) or said.append(request.url))
    yield tab
    context.close()
    assert not said


def opened(page: Page, runs: list[Run], out: Path) -> None:
    written, _ = write_report(runs, None, out, {"question": "Which?"})
    page.goto(written[0].as_uri())
    expect(page.locator("html")).to_have_attribute("data-ready", "yes")


def word(page: Page, n: int, side: int = 0):
    return page.locator(f"i[data-n='{n}']").nth(side)


def test_words_are_shaded_by_how_many_heads_hold_them(page: Page, tmp_path: Path) -> None:
    opened(page, [run("one", 2000, 100), run("two", 2000, 300)], tmp_path)
    expect(page.locator("td.answer").first).to_have_text("one says & means <it>")
    expect(word(page, 8)).to_have_class("k10")
    expect(word(page, 9)).to_have_class("k0")
    expect(word(page, 16)).to_have_class("k5")  # a quarter of the heads; the scale is its root
    page.locator("#cycle").fill("1")  # after the second cycle
    expect(page.locator("#moment")).to_have_text("after cycle 2 of 20 · 200 of 2,000 tokens read")
    expect(word(page, 16)).to_have_class("k10")
    expect(word(page, 201)).to_have_class("u")
    expect(page.locator("#held1")).to_have_text(" · nothing distilled yet")
    page.locator("#cycle").fill("2")
    expect(word(page, 9, side=1)).to_have_class("k0")
    word(page, 8).hover()
    expect(page.locator("#word")).to_contain_text(
        "word8 · token 8 · novelty 1.0 · one: held by 100% of heads"
    )


def test_search_finds_words_anywhere_and_goes_round(page: Page, tmp_path: Path) -> None:
    opened(page, [run("one", 2000, 100)], tmp_path)
    page.locator("#search").fill("WORD1998")
    expect(page.locator("#matches")).to_have_text("1 of 1")
    expect(word(page, 1998)).to_be_in_viewport()
    expect(word(page, 1998)).to_have_class("k0 f c")
    page.locator("#search").fill("word7 word8")
    expect(word(page, 8)).to_have_class("k10 f")
    page.locator("#search").fill("word100")
    expect(page.locator("#matches")).to_have_text("1 of 11")
    page.locator("#before").click()
    expect(page.locator("#matches")).to_have_text("11 of 11")
    page.locator("#search").fill("a (missing) word.*")
    expect(page.locator("#matches")).to_have_text("not in the text")


def test_the_sides_can_be_chosen(page: Page, tmp_path: Path) -> None:
    opened(page, [run("one", 2000, 100), run("two", 2000, 300), run("three", 2000, 400)], tmp_path)
    page.locator("#recipe0").select_option("three")
    expect(page.locator("#name0")).to_have_text("three")
    expect(page.locator("#name1")).to_have_text("two")
    expect(page.locator("#moment")).to_contain_text("when the answer begins")
    page.locator("#map0").hover(position={"x": 5, "y": 5})
    expect(page.locator("#maptold")).to_contain_text("layer 0, head 0, tokens 0 to 31")


SLIDE = """async () => {
  const slider = document.getElementById("cycle"), took = [];
  const frame = () => new Promise((done) => requestAnimationFrame(() => setTimeout(done, 0)));
  for (let n = 0; n < 20; n++) {
    slider.value = Math.round(n / 19 * slider.max);
    const start = performance.now();
    slider.dispatchEvent(new Event("input"));
    await frame(); await frame();
    took.push(performance.now() - start);
  }
  return took.sort((a, b) => a - b)[0];
}"""


def test_a_hundred_thousand_tokens_stay_responsive(page: Page, tmp_path: Path) -> None:
    opened(page, [run("one", LONG, 2000), run("two", LONG, 2048)], tmp_path)
    assert (tmp_path / "index.html").stat().st_size < 8_000_000
    assert page.evaluate(SLIDE) < 250, "milliseconds of the fastest move, two frames included"
    page.locator("#search").fill(f"word{LONG - 2}")
    expect(word(page, LONG - 2)).to_be_in_viewport()
    assert page.locator(".row i").count() < 8000, "only what is near the view has a node for each word"
