"""The README's picture of the page: a real server reads a file, a real browser asks about it.

    python benchmarks/picture.py --file book.txt --out docs/assets/page.png "Who is the captain of the ship?"

Needs a running `infinipot serve` and a Chromium of the system's own.
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

from playwright.sync_api import expect, sync_playwright

WAIT_MS = 3_600_000  # a long text on a CPU


def main() -> None:
    """Read, ask, and take the picture."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--url", default="http://127.0.0.1:8000")
    parser.add_argument("--file", type=Path, required=True)
    parser.add_argument("--width", type=int, default=1280)
    parser.add_argument("--height", type=int, default=800)
    parser.add_argument("--scheme", choices=("light", "dark"), default="light")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("question")
    args = parser.parse_args()
    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        size = {"width": args.width, "height": args.height}
        page = browser.new_page(viewport=size, color_scheme=args.scheme)
        page.goto(args.url)
        kept = page.locator("#kept b", has_text=args.file.name)
        expect(page.get_by_role("button", name="Read", exact=True)).to_be_visible()
        if kept.count():
            kept.first.click()
        else:
            page.locator("#file").set_input_files(args.file)
            page.get_by_role("button", name="Read", exact=True).click()
        expect(page.locator("#open-title")).to_have_text(args.file.name, timeout=WAIT_MS)
        page.get_by_label("Your question").fill(args.question)
        page.keyboard.press("Enter")
        expect(page.get_by_role("button", name="Ask")).to_be_visible(timeout=WAIT_MS)
        page.screenshot(path=args.out)
        browser.close()


if __name__ == "__main__":
    main()
