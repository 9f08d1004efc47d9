"""The page in a real browser, from upload to answer. INFINIPOT_PAGE_URL points it at another server."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, Route, expect

from e2e.browsers import TEXT, ask, read
from e2e.fake_server import FakeServer

pytestmark = pytest.mark.browser


def refuse(status: int, body: str, **headers: str) -> Any:
    return lambda route: route.fulfill(status=status, body=body, headers=headers)


def error(message: str) -> str:
    return json.dumps({"error": {"message": message, "type": "server_error", "param": None, "code": None}})


def test_from_upload_to_answer_to_kept_words(page: Page, tmp_path: Path) -> None:
    (tmp_path / "The keeper's log.txt").write_text(TEXT)
    page.locator("#file").set_input_files(tmp_path / "The keeper's log.txt")
    expect(page.get_by_label("Title")).to_have_value("The keeper's log.txt")
    page.get_by_role("button", name="Read", exact=True).click()
    expect(page.locator("#watch-title")).to_have_text("Reading The keeper's log.txt")
    expect(page.locator("#watch-tokens")).not_to_have_text("0")
    expect(page.locator("#open-title")).to_have_text("The keeper's log.txt", timeout=60_000)
    expect(page.locator("#open-facts")).to_contain_text("tokens read")
    expect(page.locator("#kept [aria-current] b")).to_have_text("The keeper's log.txt")
    expect(page.locator("#open-facts")).to_contain_text("kept as the-keeper-s-log ·")
    expect(page).to_have_title("The keeper's log.txt · InfiniPot")
    assert ask(page, "What is the keeper's name?")
    expect(page.locator("#log .hint")).to_contain_text("read now")
    page.get_by_role("tab", name="What the pot kept").click()
    word = page.locator("#words [data-word]").nth(3).inner_text()
    page.get_by_label("Search the kept words").fill(word.upper())
    expect(page.locator("#found")).to_contain_text("found")
    page.keyboard.press("Enter")
    expect(page.locator("#word")).to_contain_text(word)
    expect(page.locator("#word")).to_contain_text("% of heads · novelty")
    page.reload()
    expect(page.locator("#open-title")).to_have_text("The keeper's log.txt")


def test_the_pot_fills_to_the_brim_and_sinks(page: Page, fake: FakeServer) -> None:
    fake.pause = 0.1
    page.evaluate("""() => { window.seen = []; const pot = document.getElementById('vessel');
        new MutationObserver(() => window.seen.push([parseFloat(pot.style.getPropertyValue('--depth')),
        pot.classList.contains('boiling')])).observe(pot, {attributes: true}); }""")
    read(page, "Brim", TEXT * 2)
    seen = page.evaluate("window.seen")
    assert [54, True] in seen
    after = seen[seen.index([54, True]) :]
    assert any(depth > 60 and not boiling for depth, boiling in after)
    assert page.locator("#trace-line").get_attribute("d").count("L") > 8


def test_a_taken_name_is_seen_before_and_after(page: Page) -> None:
    read(page, "Log", "Short. ")
    page.get_by_label("Or paste text").fill("Shorter.")
    page.get_by_label("Title").fill("Log")
    expect(page.locator("#name-hint")).to_have_text("Kept as log-2 (log is taken)")
    page.route("**/v1/pots/log-2?*", refuse(409, error("there is a pot named log-2")))
    page.get_by_role("button", name="Read", exact=True).click()
    expect(page.locator("#read-note")).to_have_text("log-2 is taken by now. Press Read to keep it as log-3.")
    page.get_by_role("button", name="Read", exact=True).click()
    expect(page.locator("#open-facts")).to_contain_text("log-3")


def test_escape_cancels_a_reading_and_frees_the_slot(page: Page, fake: FakeServer) -> None:
    fake.pause = 0.2
    page.get_by_label("Or paste text").fill(TEXT * 4)
    page.get_by_role("button", name="Read", exact=True).click()
    expect(page.locator("#watch-cycles")).to_contain_text("times", timeout=60_000)
    expect(page.get_by_role("button", name="Cancel reading")).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.locator("#read-note")).to_have_text("Cancelled. Nothing was kept.")
    expect(page.locator("#watch")).to_be_hidden()
    expect(page.locator("#status-work")).to_have_text("free", timeout=10_000)


def test_only_who_waits_is_said_to_wait(page: Page, fake: FakeServer) -> None:
    """With an empty queue nothing is said of waiting; with a full one, the place as the server tells it."""
    fake.pause = 1.5
    page.get_by_label("Or paste text").fill(TEXT)
    page.get_by_role("button", name="Read", exact=True).click()
    expect(page.locator("#watch-phase")).to_have_text("The text is sent")
    page.keyboard.press("Escape")
    expect(page.locator("#watch")).to_be_hidden()
    fake.places = [{"position": 3, "expected_wait_s": 40.0}, {"position": 1, "expected_wait_s": 0.4}]
    page.get_by_role("button", name="Read", exact=True).click()
    expect(page.locator("#watch-phase")).to_have_text("2 before you, about 40 s")
    expect(page.locator("#watch-phase")).to_have_text("Next in line")
    expect(page.locator("#watch-phase")).to_contain_text("Read")


def test_below_a_first_reading_nothing_is_empty(page: Page, fake: FakeServer) -> None:
    fake.pause = 0.3
    page.get_by_label("Or paste text").fill(TEXT)
    expect(page.get_by_label("Title")).to_have_attribute("placeholder", "The keeper's name is Marlow. The")
    page.get_by_role("button", name="Read", exact=True).click()
    expect(page.locator("#watch")).to_be_visible()
    expect(page.locator(".open")).to_be_hidden()
    expect(page.locator("#watch-share")).not_to_have_text("0%")
    assert "% read · InfiniPot" in page.title()
    page.keyboard.press("Escape")
    expect(page.locator(".open")).to_be_visible()
    fake.pause = 0.01
    read(page, "Log", "Short. ")
    fake.pause = 0.3
    page.get_by_label("Or paste text").fill(TEXT)
    page.get_by_role("button", name="Read", exact=True).click()
    expect(page.locator("#watch")).to_be_visible()
    expect(page.get_by_label("Your question")).to_be_visible()  # about the one that is open


def test_a_slow_answer_gives_signs_of_life(page: Page, fake: FakeServer) -> None:
    fake.pause = 5
    page.get_by_label("Your question").fill("Who?")
    page.keyboard.press("Enter")
    expect(page.locator("#log .hint")).to_have_text(re.compile(r"Asking, \d+ s"))
    expect(page.locator("#log .hint")).to_contain_text("Writing, ", timeout=30_000)
    expect(page.locator("#log .alive")).to_have_count(1)
    page.keyboard.press("Escape")
    expect(page.locator("#log .hint")).to_have_text("Stopped. ")
    expect(page.locator("#log .alive")).to_have_count(0)


def test_the_page_has_words_that_readers_know(page: Page, fake: FakeServer) -> None:
    read(page, "Log")
    ask(page, "Who?")
    said = page.locator("body").inner_text().lower()
    assert not {"slot", "slots", "queue", "entries", "kv"} & set(re.findall(r"[a-z]+", said))
    expect(page.locator("#status-work")).to_have_text("free")
    fake.busy = 2
    expect(page.locator("#status-work")).to_have_text("at work on 2 of at most 2")


def test_a_busy_server_is_tried_again(page: Page) -> None:
    left = [1, 1]

    def busy(route: Route) -> None:
        if left:
            left.pop()
            route.fulfill(status=429, body=error("busy"), headers={"Retry-After": "1"})
        else:
            route.continue_()

    page.route("**/v1/chat/completions", busy)
    page.get_by_label("Your question").fill("Who?")
    page.keyboard.press("Enter")
    expect(page.locator("#log .hint")).to_have_text("The server is busy, trying again in 1 s.")
    expect(page.locator("#log .said")).not_to_be_empty(timeout=30_000)
    assert left == []
    left.append(1)
    page.route("**/v1/pots/**", busy)
    read(page, "Patience", "Short. ")


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (
            refuse(500, error("out of memory: use a smaller --capacity")),
            "out of memory: use a smaller --capacity",
        ),
        (refuse(502, "<html>Bad Gateway"), "The server answered 502. Try again, or look at its log."),
        (refuse(401, ""), "This server needs a key. Reload the page and sign in with it as the password."),
        (
            lambda route: route.abort(),
            "The server cannot be reached. Check that it is running, then try again.",
        ),
        (
            refuse(200, f"event: error\ndata: {error('the worker died: restart it')}\n\n"),
            "the worker died: restart it",
        ),
        (refuse(200, ": nothing\n\n"), "The connection broke before the answer was whole. Ask again."),
    ],
)
def test_what_goes_wrong_is_told_in_one_line(page: Page, answer: Any, told: str) -> None:
    page.route("**/v1/chat/completions", answer)
    ask(page, "Who?")
    expect(page.locator("#log .wrong")).to_have_text(told)
    expect(page.get_by_label("Your question")).to_have_value("Who?")
    page.unroute("**/v1/chat/completions")
    page.route("**/v1/pots/**", answer)
    page.get_by_label("Or paste text").fill("Short.")
    page.get_by_role("button", name="Read", exact=True).click()
    broken = "The connection broke before the text was read. Read it again."
    expect(page.locator("#read-note")).to_have_text(broken if "broke" in told else told)


def test_a_file_that_is_no_text_is_refused(page: Page) -> None:
    page.locator("#file").set_input_files({"name": "a.bin", "mimeType": "", "buffer": b"\xff\xfe\x00"})
    page.get_by_role("button", name="Read", exact=True).click()
    expect(page.locator("#read-note")).to_contain_text("UTF-8")
    page.get_by_role("button", name="Remove").click()
    page.get_by_role("button", name="Read", exact=True).click()
    expect(page.locator("#read-note")).to_contain_text("nothing to read yet")


def test_a_stopped_answer_stays_in_the_conversation(page: Page, fake: FakeServer) -> None:
    fake.pause = 0.15
    page.get_by_label("Your question").fill("Who?")
    page.keyboard.press("Enter")
    expect(page.locator("#log .said")).not_to_be_empty(timeout=30_000)
    page.keyboard.press("Escape")
    expect(page.locator("#log .hint")).to_have_text("Stopped. ")
    said = page.locator("#log .said").text_content()
    fake.pause = 0.01
    with page.expect_request("**/v1/chat/completions") as sent:
        ask(page, "And then?")
    messages = sent.value.post_data_json["messages"]
    assert [message["role"] for message in messages] == ["user", "assistant", "user"]
    assert messages[1]["content"] == said


def test_an_answer_shows_where_it_comes_from(page: Page, fake: FakeServer) -> None:
    hostile = "<b onclick='window.hacked=1'>The keepers</b> were called Marlow.\n\nThe sea was calm."
    place = "The keeper's log, characters 1,200 to 1,285"
    fake.passages = [{"place": place, "quote": "<i>The keepers</i> were called Marlow", "text": hostile}] * 2
    ask(page, "What is the keeper's name?")
    expect(page.locator(".places")).to_have_count(0)  # of no pot: nothing was recalled
    read(page, "The keeper's log")
    ask(page, "What is the keeper's name?")
    found = page.get_by_label("Where this comes from").locator("details")
    expect(found).to_have_count(2)
    expect(found.first.locator("cite")).to_have_text(place)
    expect(found.first.locator("q")).to_have_text("<i>The keepers</i> were called Marlow")
    text = found.first.locator("p")
    expect(text).to_be_hidden()
    found.first.locator("summary").click()
    expect(text).to_have_text(hostile)
    expect(text.locator("mark")).to_have_text(["keepers"])
    expect(text.locator("b")).to_have_count(0)
