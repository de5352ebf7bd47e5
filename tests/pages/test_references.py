"""Every public name is documented, every work is cited, and the key of a work holds its year."""

import ast
import re

import pytest

from docs._ext.book import api
from tests.pages.reading import DOCS, PAGES, Page, pages_with_tests

COLUMNS = ("conformance", "figures", "jax", "reference", "torch")
SOURCE = DOCS.parent / "src" / "posattn"
WORK = re.compile(r"^@\w+\{([^,\s]+),(.*?)^\}", re.MULTILINE | re.DOTALL)
YEAR = re.compile(r"^\s*year\s*=\s*[{\"]?(\d+)", re.MULTILINE)
CITED = re.compile(r"\{cite:\w+\}`([^`]+)`|:cite:\w+:`([^`]+)`")
WORKS = dict(WORK.findall((DOCS.parent / "references.bib").read_text("utf-8")))


def public_names(column):
    """What a column's package exports."""
    text = (SOURCE / column / "__init__.py").read_text("utf-8")
    (listed,) = re.findall(r"^__all__ = (\[.*?\])$", text, re.M | re.S)
    return set(ast.literal_eval(listed))


def documented():
    """The full names of what the reference documents."""
    written = {path.name: path.read_text("utf-8") for path in (DOCS / "api").glob("*.rst")}
    for text in (written | api.pages(DOCS)).values():
        module = ""
        for kind, name in re.findall(r"^\.\. (\w+):: (\S+)", text, re.M):
            if kind in ("currentmodule", "automodule", "module"):
                module = f"{name}."
            elif kind.startswith("auto"):
                yield name if name.startswith("posattn.") else module + name


@pytest.mark.parametrize("column", COLUMNS)
def test_every_public_name_is_documented(column):
    known = {name.rpartition(".")[2] for name in documented() if f".{column}." in name}
    missing = public_names(column) - known
    assert not missing, f"docs/api says nothing of {', '.join(sorted(missing))}"


def test_every_public_name_is_in_a_group_of_the_index():
    listed = (DOCS / "api" / "index.rst").read_text("utf-8").split()
    assert public_names("reference") <= {*listed}


def test_a_page_with_cells_has_tests():
    for path in PAGES:
        tested = path.stem in pages_with_tests() or not Page(path).cells
        assert tested, f"write tests/pages/test_{path.stem}.py"


def test_every_work_is_cited():
    texts = [*DOCS.rglob("*.md"), *DOCS.rglob("*.rst"), *SOURCE.rglob("*.py")]
    cited = {
        key.strip()
        for path in texts
        for keys in CITED.findall(path.read_text("utf-8"))
        for key in "".join(keys).split(",")
    }
    for key in sorted(WORKS.keys() ^ cited):
        assert key in WORKS, f"{key} is cited, and references.bib does not have it"
        assert key in cited, f"{key} stands in references.bib, and nothing cites it"


@pytest.mark.parametrize("key", WORKS)
def test_the_key_of_a_work_holds_its_year(key):
    year = YEAR.search(WORKS[key])
    assert year, f"{key} has no year in references.bib"
    assert year[1] in key, f"{key} has the year {year[1]} in references.bib"
