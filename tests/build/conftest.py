"""The small book in every form: each is built once, for all tests and workers that look at it."""

import json
import os

import pytest
from filelock import FileLock

from tests.audit import chromium
from tests.build import books
from tests.conftest import need


@pytest.fixture(scope="session")
def book(tmp_path_factory):
    """A function that builds the small book in a form, and returns its folder and what was said."""
    home = tmp_path_factory.getbasetemp()
    home = home.parent if "PYTEST_XDIST_WORKER" in os.environ else home
    folder = home / "book"

    def build(builder, *only):
        with FileLock(home / "book.lock"):
            noted = home / f"book-{builder}.json"
            if not folder.is_dir():
                books.copy(folder)
            if not noted.is_file():
                _, code, said = books.build(folder, builder, *only)
                noted.write_text(json.dumps([code, said]))
            code, said = json.loads(noted.read_text())
        assert code == 0, said
        return folder / "build" / builder

    return build


@pytest.fixture(scope="session")
def site(book):
    """The small book as a site."""
    return book("html")


@pytest.fixture(scope="module")
def browser():
    """Chromium, which is the system's."""
    need(chromium.program(), chromium.MISSING)
    with chromium.started() as started:
        yield started
