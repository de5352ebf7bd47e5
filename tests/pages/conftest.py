"""The fixture `page`: the page that a file of tests is about, with its cells run.

And two tests that every such file ends with, so that no page is run twice for them.
"""

import re

import jaxtyping
import matplotlib
import numpy as np
import pytest
import yaml

from tests.pages.prose import FRONT, formulas, sentences
from tests.pages.reading import functions_of, page_of, pages_with_tests, quotes

matplotlib.use("svg")
FAULT = re.compile(r"\b(?:False|NaN)\b", re.IGNORECASE)
TYPED = re.compile(r"(?<![\w.,])\d+(?:,\d{3})*(?:\.\d+)?(?![\w%])(?!\.\d)")
ANY = re.compile(r"\d+(?:\.\d+)?")
APART = re.compile(r"(?<=\d)(?:,|\\,|\{,\}|_)(?=\d{3})")  # between thousands


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
        """Add the tests that hold for every page."""
        yield from super().collect()
        for last in what_looks_like_a_fault_is_explained, every_typed_number_is_on_the_page:
            name = f"test_{last.__name__}"
            yield pytest.Function.from_parent(self, name=name, callobj=last)


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


def numbers(*texts):
    """All numbers in some texts."""
    return {float(number) for text in texts for number in ANY.findall(APART.sub("", text))}


def quantities(text):
    """What the front matter says of sources."""
    front = FRONT.match(text)
    return str(yaml.safe_load(front[1]).get("quantities", "")) if front else ""


def every_typed_number_is_on_the_page(page):
    """A number that is typed in a sentence stands in a cell, an output or an equation of its page.

    Or a test of the page quotes it. Or it stands in the front matter, under `quantities`, if a source
    says it. Whatever else a sentence counts is pasted from the cell that computed it (`glue`), and cannot
    be wrong.
    """
    ran = [text for cell in page.cells for text in (cell.code, cell.printed)]
    tests = functions_of(page.path.stem)
    quoted = [quote for function in tests for quote in quotes(function)]
    known = numbers(*ran, *formulas(page.text), *quoted, quantities(page.text))
    missing = [
        f"{number} in line {line}"
        for line, words in sentences(page.text)
        for number in TYPED.findall(words)
        if numbers(number) - known
    ]
    assert not missing, (
        f"{page.path.name}: {', '.join(missing)}: no cell, output, equation or test has it; paste it "
        "with glue, quote it in a test, or list it under quantities if a source says it"
    )
