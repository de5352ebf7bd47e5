"""The fixture `page`: the page that a file of tests is about, with its cells run.

And one test that every such file ends with, so that no page is run twice for it.
"""

import re

import jaxtyping
import matplotlib
import numpy as np
import pytest

from tests.pages.reading import page_of, pages_with_tests

matplotlib.use("svg")
FAULT = re.compile(r"\b(?:False|NaN)\b", re.IGNORECASE)


@pytest.fixture(scope="module")
def page(request):
    """Run the page as the build does, without the checks of annotations that tests switch on."""
    jaxtyping.config.update("jaxtyping_disable", True)
    with np.printoptions():  # which a page may set
        ran = page_of(request.module.__name__.rpartition("test_")[2]).run()
    yield ran
    jaxtyping.config.update("jaxtyping_disable", False)


class PageTests(pytest.Module):
    """The tests of a page."""

    def collect(self):
        """Add the test that holds for every page."""
        yield from super().collect()
        last = what_looks_like_a_fault_is_explained
        yield pytest.Function.from_parent(self, name=f"test_{last.__name__}", callobj=last)


def pytest_pycollect_makemodule(module_path, parent):
    """Collect the tests of a page."""
    if module_path.stem.removeprefix("test_") in pages_with_tests():
        return PageTests.from_parent(parent, path=module_path)
    return None


def what_looks_like_a_fault_is_explained(page):
    """A printed False or NaN needs a word that it should be so, in its cell or in the prose around."""
    ran = iter(page.cells)
    cells = [next(ran) if c.cell_type == "code" else c.source for c in page.notebook]
    for before, cell, after in zip(["", *cells], cells, [*cells[1:], ""], strict=False):
        if isinstance(cell, str) or {"remove-cell", "remove-output"} & cell.tags:
            continue
        around = [text for text in (before, after) if isinstance(text, str)]
        known = {
            word.lower() for text in (cell.code, *around) for word in FAULT.findall(text)
        }
        for word in FAULT.findall(cell.printed):
            assert word.lower() in known, (
                f"{page.path.name} prints {word}, and no word around the cell says why:\n{cell.code}"
            )
