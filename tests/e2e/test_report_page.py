"""The page of `infinipot report` in a real browser: its switch, both colours, a phone, no network."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from infinipot.eval.grid import Grid
from infinipot.eval.report import report
from toy_eval import kept_run

pytestmark = pytest.mark.browser

TASKS = tuple(f"a_task_with_a_long_name_{n}" for n in range(12))


@pytest.fixture(scope="module")
def there(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A report of twelve tasks, as wide as LongBench's."""

    def score(cell: Any, name: str, facts: dict[str, Any]) -> float:
        return float((cell.catalyst == "by-task") ^ name.endswith(("0", "1")))

    rows = [(f"{task}/{n}", {"task": task}) for task in TASKS for n in range(10)]
    grid = Grid(("infinipot", "truncate"), catalysts=("by-task", "general"))
    runs = kept_run(tmp_path_factory.mktemp("runs"), "longbench", grid, rows, score)
    return report([runs], tmp_path_factory.mktemp("out"))[0].as_uri()


@pytest.fixture
def page(browser: Browser, there: str) -> Iterator[Page]:
    """A tab without a network; whatever it asks for or complains about fails the test."""
    context = browser.new_context(offline=True, viewport={"width": 1300, "height": 900})
    tab, said = context.new_page(), []
    tab.on("console", lambda message: said.append(message.text))
    tab.on("request", lambda request: request.url.startswith(("file:", "data:")) or said.append(request.url))
    tab.goto(there)
    yield tab
    context.close()
    assert not said


def test_the_switch_shows_one_board_at_a_time(page: Page) -> None:
    known, unknown = (page.locator("table.board").nth(n) for n in range(2))
    expect(known).to_be_visible()
    expect(unknown).to_be_hidden()
    page.get_by_text("Question unknown", exact=True).first.click()
    expect(unknown).to_be_visible()
    expect(known).to_be_hidden()
    expect(unknown).to_contain_text("infinipot 4096 general")
    expect(unknown).not_to_contain_text("by-task")


def test_light_and_dark_are_the_readers_choice(page: Page) -> None:
    def colour(what: str) -> str:
        return str(page.evaluate(f"getComputedStyle(document.body).{what}"))

    page.emulate_media(color_scheme="light")
    light = colour("backgroundColor"), colour("color")
    page.emulate_media(color_scheme="dark")
    dark = colour("backgroundColor"), colour("color")
    assert dark[0] != light[0]
    assert dark[1] != light[1]


def test_on_a_phone_only_tables_scroll_sideways(page: Page) -> None:
    page.set_viewport_size({"width": 390, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    board = page.locator("table.board").first
    assert board.evaluate("table => table.offsetWidth") > 390
    assert board.evaluate("table => getComputedStyle(table.parentElement).overflowX") == "auto"
