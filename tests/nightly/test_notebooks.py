"""Every notebook runs without the other framework and without the book, and prints what its page shows."""

import pytest

from tests.build.books import ROOT
from tests.conftest import need
from tests.nightly.rerun import run_notebook

FOLDER = ROOT / "build" / "html" / "_notebooks"
NOTEBOOKS = sorted(FOLDER.rglob("*.ipynb"))


def test_there_are_notebooks():
    need(NOTEBOOKS, "the notebooks are not built: nox -s docs")


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_prints_what_its_page_shows(path, monkeypatch):
    monkeypatch.delenv("XLA_FLAGS", raising=False)  # as a user has it
    difference = run_notebook(path)
    assert difference is None, difference
