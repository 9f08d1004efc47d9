"""The page for everyone: by keyboard, on a phone, in the dark, with hostile text and very much of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from e2e.browsers import TEXT, ask, read
from e2e.fake_server import FakeServer

pytestmark = pytest.mark.browser
HOSTILE = "<img src=x onerror='window.hacked=1'><script>window.hacked=1</script>"
TOP = "document.querySelector('{}').getBoundingClientRect().top"
OVERFLOW = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
NAMELESS = """[...document.querySelectorAll('button, a, input, textarea, [tabindex="0"], [role=meter]')]
  .filter((e) => !(e.getAttribute('aria-label') || e.labels?.length || e.textContent.trim()))
  .map((e) => e.outerHTML)"""
CONTRAST = """() => {
  const context = new OffscreenCanvas(1, 1).getContext('2d', {willReadFrequently: true});
  const probe = document.body.appendChild(document.createElement('i'));
  const light = (name) => {
    probe.style.color = `var(--${name})`;
    context.fillStyle = getComputedStyle(probe).color;
    context.fillRect(0, 0, 1, 1);
    const [r, g, b] = [...context.getImageData(0, 0, 1, 1).data].map((v) => v / 255)
      .map((v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ratio = (a, b) => (Math.max(light(a), light(b)) + 0.05) / (Math.min(light(a), light(b)) + 0.05);
  const both = (name) => [ratio(name, 'page'), ratio(name, 'card')];
  const text = ['ink', 'dim', 'accent', 'wrong'].flatMap(both);
  return [Math.min(...text, ratio('on-accent', 'accent')), Math.min(...both('edge'))];
}"""


def tab_to(page: Page, element: str, key: str = "Tab") -> None:
    for _ in range(30):
        page.keyboard.press(key)
        if page.evaluate("document.activeElement.id") == element:
            return
    pytest.fail(f"{element} is not reached with {key}")


def test_the_whole_way_by_keyboard(page: Page) -> None:
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to asking")).to_be_in_viewport()
    for element in ("theme", "file", "paste"):
        tab_to(page, element)
    page.keyboard.insert_text(TEXT)
    tab_to(page, "title")
    page.keyboard.type("By hand")
    page.keyboard.press("Enter")
    expect(page.locator("#open-title")).to_have_text("By hand", timeout=60_000)
    expect(page.get_by_label("Your question")).to_be_focused()
    page.keyboard.type("Who?")
    page.keyboard.press("Shift+Enter")
    page.keyboard.type("Where?")
    page.keyboard.press("Enter")
    expect(page.locator("#announcer")).to_contain_text("Answer: ", timeout=60_000)
    assert page.locator(".asked").text_content() == "Who?\nWhere?"
    tab_to(page, "tab-ask", "Shift+Tab")
    page.keyboard.press("ArrowRight")
    tab_to(page, "words")
    expect(page.locator("#words [data-word]").first).to_be_visible()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    expect(page.locator("#word")).to_contain_text("of heads")
    expect(page.locator("#words [aria-current]")).to_have_attribute("data-word", "1")
    tab_to(page, "delete", "Shift+Tab")
    page.keyboard.press("Enter")
    expect(page.get_by_role("button", name="Keep it")).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.locator("#delete")).to_be_focused()
    expect(page.locator("#open-title")).to_have_text("By hand")


def test_everything_to_press_has_a_name(page: Page) -> None:
    read(page, "Names", "Short. ")
    assert page.evaluate(NAMELESS) == []


def test_hostile_text_is_text(page: Page) -> None:
    read(page, HOSTILE, f"{HOSTILE} " * 3)
    page.route(
        "**/v1/chat/completions",
        lambda route: route.fulfill(
            body=f"data: {json.dumps({'choices': [{'delta': {'content': HOSTILE}}]})}\n\ndata: [DONE]\n\n"
        ),
    )
    assert ask(page, HOSTILE) == HOSTILE
    page.get_by_role("tab", name="What the pot kept").click()
    page.locator("#words [data-word]").first.hover()
    expect(page.locator("#word")).to_contain_text("<img")
    page.get_by_role("button", name="Delete").click()
    expect(page.locator("#sure-text")).to_contain_text(HOSTILE)
    assert page.evaluate(
        "[window.hacked, document.querySelectorAll('main img, dialog img, main script').length]"
    ) == [None, 0]


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_on_a_phone_nothing_is_wider_than_the_window(
    browser: Browser, base_url: str, fake: FakeServer, theme: str, tmp_path: Path
) -> None:
    fake.pause = 0.3
    window = {"width": 360, "height": 740}
    context = browser.new_context(
        viewport=window, is_mobile=True, has_touch=True, color_scheme=theme, reduced_motion="reduce"
    )
    page = context.new_page()
    page.goto(base_url)
    page.wait_for_selector("html[data-ready]")
    assert page.evaluate(OVERFLOW) == 0
    page.get_by_label("Or paste text").fill(TEXT)
    page.get_by_label("Title").fill("W" * 120)
    page.get_by_role("button", name="Read", exact=True).click()
    expect(page.locator("#watch-fill")).to_contain_text("of")
    expect(page.get_by_role("button", name="Cancel reading")).to_be_in_viewport()
    assert page.evaluate(OVERFLOW) == 0
    expect(page.locator("#open-actions")).to_be_visible(timeout=60_000)
    above = f"{TOP.format('.stage')} < {TOP.format('.side')}"
    assert page.evaluate(above)  # what was read comes before what can be read
    ask(page, "x" * 300)
    page.get_by_role("tab", name="What the pot kept").click()
    expect(page.locator("#words [data-word]").first).to_be_visible()
    assert page.evaluate(OVERFLOW) == 0
    page.screenshot(path=tmp_path / "phone.png", full_page=True)
    assert (tmp_path / "phone.png").stat().st_size > 20_000  # not blank
    context.close()


def test_colours_can_be_read_in_both_themes_and_the_choice_stays(page: Page) -> None:
    for dark in (False, True):
        text, edges = page.evaluate(CONTRAST)
        assert text >= 4.5, (dark, text)
        assert edges >= 3, (dark, edges)
        page.get_by_role("button", name="Dark page").click()
    page.get_by_role("button", name="Dark page").click()
    page.reload()
    expect(page.get_by_role("button", name="Dark page", pressed=True)).to_be_visible()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(21, 23, 27)"


def test_a_pot_is_added_to_downloaded_deleted_and_brought_back(page: Page, tmp_path: Path) -> None:
    read(page, "Travels", "Short. ")
    before = page.locator("#open-facts").inner_text()
    ask(page, "Who?")
    page.get_by_role("button", name="Add text").click()
    page.get_by_label("Or paste text").fill(TEXT)
    page.get_by_role("button", name="Read on").click()
    expect(page.locator("#open-facts")).not_to_have_text(before, timeout=60_000)
    expect(page.locator("#log article")).to_have_count(1)  # the conversation goes on
    with page.expect_download() as download:
        page.get_by_role("link", name="Download").click()
    download.value.save_as(tmp_path / "travels.pot")
    page.get_by_role("button", name="Delete").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    expect(page.locator("#open-title")).to_have_text("No text is open")
    expect(page.locator("#kept b", has_text="Travels")).to_have_count(0)
    page.locator("#import").set_input_files(tmp_path / "travels.pot")
    expect(page.locator("#open-title")).to_have_text("Travels")
    page.locator("#import").set_input_files({"name": "x.pot", "mimeType": "", "buffer": b"not a pot"})
    expect(page.locator("#kept-note")).to_contain_text("not a pot")


def test_files_are_dropped_and_much_pasted_text_is_a_file(page: Page) -> None:
    page.evaluate("""() => { const data = new DataTransfer();
        for (const name of ['one.txt', 'two.txt']) data.items.add(new File(['Dropped. '], name));
        const event = new DragEvent('drop', {dataTransfer: data, bubbles: true, cancelable: true});
        document.getElementById('drop').dispatchEvent(event); }""")
    expect(page.locator("#chosen-name")).to_have_text("one.txt and 1 more, 50 B")  # and a line for each name
    page.get_by_role("button", name="Remove").click()
    page.evaluate("""() => { const data = new DataTransfer();
        data.setData('text/plain', 'Much of it. '.repeat(50000));
        const event = new ClipboardEvent('paste', {clipboardData: data, cancelable: true});
        document.getElementById('paste').dispatchEvent(event); }""")
    expect(page.locator("#chosen-name")).to_have_text("Much of it. Much of it., 600 kB")


def test_a_folder_is_one_text_with_the_names_of_its_files(
    page: Page, fake: FakeServer, tmp_path: Path
) -> None:
    """As on the command line: what is no text is left out and counted, what is hidden is not looked at."""
    folder = tmp_path / "notes"
    for name, data in {
        "b.txt": b"Second.",
        "a/first.md": "Erst\u00e9.".encode(),
        ".git/config": b"hidden",
        "picture.png": b"\x89PNG\0",
        "paper.pdf": b"%PDF-1.7",
        "empty.txt": b"",
    }.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    page.locator("#folder").set_input_files(folder)
    expect(page.locator("#read-note")).to_contain_text("2 of 4 files are left out")
    expect(page.get_by_label("Title")).to_have_value("notes")
    page.get_by_role("button", name="Read", exact=True).click()
    expect(page.locator("#open-title")).to_have_text("notes", timeout=60_000)
    assert fake.texts["notes"] == "File: notes/a/first.md\n\nErst\u00e9.\n\nFile: notes/b.txt\n\nSecond."


def test_a_long_message_shows_how_it_is_read(page: Page, fake: FakeServer) -> None:
    fake.pause = 0.3
    page.get_by_label("Your question").fill(TEXT[:16_000])
    page.keyboard.press("Enter")
    expect(page.locator("#log progress")).to_be_visible()
    expect(page.locator("#log .hint")).to_contain_text("Reading")
    page.get_by_role("button", name="Stop").click()
    expect(page.get_by_label("Your question")).to_be_focused()


def test_a_hundred_thousand_words_stay_light(page: Page) -> None:
    read(page, "Big", "Short. ")
    words = [{"text": f"word{n}", "start": 3 * n, "end": 3 * n + 1 + n % 2 * 2} for n in range(100_000)]
    words = [{**word, "share": n % 10 / 10, "novelty": 1.0} for n, word in enumerate(words)]
    body = json.dumps({"words": words, "tokens_read": 300_000, "held": 2048})
    page.route(
        "**/v1/pots/big/words", lambda route: route.fulfill(body=body, content_type="application/json")
    )
    page.get_by_role("tab", name="What the pot kept").click()
    expect(page.locator("#words-note")).to_contain_text("100,000 words", timeout=30_000)
    page.get_by_label("Search the kept words").fill("word98765")
    page.keyboard.press("Enter")
    expect(page.locator("#words .hit")).to_be_in_viewport()
    assert page.locator("#words [data-word]").count() < 5_000
    assert "word98764 … word98765 word98766 …" in page.locator("#words").inner_text()
