"""A number that is typed in a sentence stands in a cell, an output or an equation of its page.

Or a test of the page quotes it. Or it stands in the front matter, under `quantities`, if a source says it.
Whatever else a sentence counts is pasted from the cell that computed it (`glue`), and cannot be wrong.
"""

import re

import pytest
import yaml

from tests.pages.prose import FRONT, formulas, sentences
from tests.pages.reading import PAGES, Page, functions_of, quotes

TYPED = re.compile(r"(?<![\w.,])\d+(?:,\d{3})*(?:\.\d+)?(?![\w%])(?!\.\d)")
ANY = re.compile(r"\d+(?:\.\d+)?")
APART = re.compile(r"(?<=\d)(?:,|\\,|\{,\}|_)(?=\d{3})")  # between thousands


def numbers(*texts):
    """All numbers in some texts."""
    return {float(number) for text in texts for number in ANY.findall(APART.sub("", text))}


def quantities(text):
    """What the front matter says of sources."""
    front = FRONT.match(text)
    return str(yaml.safe_load(front[1]).get("quantities", "")) if front else ""


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_every_typed_number_is_on_the_page(path, unchecked):
    page = Page(path)
    codes = [cell.code for cell in page.cells]
    quoted = [quote for function in functions_of(path.stem) for quote in quotes(function)]
    known = numbers(*codes, *formulas(page.text), *quoted, quantities(page.text))
    typed = [
        (line, number)
        for line, words in sentences(page.text)
        for number in TYPED.findall(words)
    ]
    if any(numbers(number) - known for _, number in typed):  # it may be printed
        known |= numbers(*(cell.printed for cell in page.run().cells))
    missing = [f"{n} in line {line}" for line, n in typed if numbers(n) - known]
    assert not missing, (
        f"{path.name}: {', '.join(missing)}: no cell, output, equation or test has it; paste it "
        "with glue, quote it in a test, or list it under quantities if a source says it"
    )
