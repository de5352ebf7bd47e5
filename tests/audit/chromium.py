"""The system's Chromium, which prints the slides; the tests look at the slides with it.

`python -m tests.audit.chromium attention.html position.html slides` prints decks into a folder, one page
for each slide.
"""

import os
import re
import shutil
import sys
import time
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import sync_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome")
MISSING = "the slides need Chromium. On Debian or Ubuntu: apt-get install chromium"
UNLINK = """for (const a of document.querySelectorAll("a[href]:not([href^='#'], [href^='http'])"))
    a.removeAttribute("href")"""  # paper does not know where the site is
DATE = re.compile(rb"(?<=Date \(D:)\d{14}")  # which Chromium takes from the clock
LISTEN = "addEventListener('pdf-ready', () => { window.ready = true; })"  # before reveal.js says so


def program():
    """The path of Chromium, or None."""
    return next(filter(None, map(shutil.which, NAMES)), None)


@contextmanager
def started():
    """A browser without a window."""
    with sync_playwright() as playwright:
        # without a network Chromium takes a disk for a slow one, and says so of each font
        known = ["--force-effective-connection-type=4G"]
        browser = playwright.chromium.launch(executable_path=program(), args=known)
        yield browser
        browser.close()


def print_slides(browser, deck, target):
    """Print once reveal.js has laid out all pages; Chromium's own `--print-to-pdf` may come too early."""
    page = browser.new_page()
    page.add_init_script(LISTEN)
    page.goto(f"{deck.resolve().as_uri()}?print-pdf")
    page.wait_for_function("window.ready")
    page.evaluate("document.fonts.ready")
    page.evaluate(UNLINK)
    pdf = page.pdf(prefer_css_page_size=True, print_background=True)
    day = time.gmtime(int(os.environ.get("SOURCE_DATE_EPOCH", time.time())))
    pdf = DATE.sub(time.strftime("%Y%m%d%H%M%S", day).encode(), pdf)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(pdf)


if __name__ == "__main__":
    if program() is None:
        sys.exit(MISSING)
    with started() as chromium:
        *decks, folder = map(Path, sys.argv[1:])
        for deck in decks:
            print_slides(chromium, deck, folder / f"{deck.stem}.pdf")
