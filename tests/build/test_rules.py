"""The book's own rules: its front matter, its cells, its sources, its glossary."""

import ast
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.build.books import ROOT
from tests.pages import conftest as rules
from tests.pages.reading import Page

PAGES = sorted((ROOT / "docs").rglob("*.md"))
CELL = re.compile(r"^```\{code-cell\}.*?\n(.*?)^```", re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize(
    "page", PAGES, ids=lambda page: str(page.relative_to(ROOT / "docs"))
)
def test_every_page_keeps_the_rules(page):
    text = page.read_text(encoding="utf-8")
    description = re.search(r"^    description: (.+)$", text, re.MULTILINE)
    assert description, "the front matter describes the page"
    assert 50 <= len(description[1]) <= 170
    for code in CELL.findall(text):
        scratch = ":tags: [scratch]" in code  # where a cache, which remembers, is a class
        assert scratch or not re.search(r"^\s*class ", code, re.MULTILINE), "no classes"
        assert not re.search(r"(default_rng|seed)\(\)", code), "no seed"


@pytest.mark.parametrize("framework", ["torch", "jax"])
def test_the_visible_cells_of_a_page_define_what_they_use(framework, tmp_path):
    """They are its notebook, which would otherwise fail at night, or at a reader's."""
    (other,) = {"torch", "jax"} - {framework}
    for page in map(Page, PAGES):
        code = [c.code for c in page.cells if c.visible and other not in c.tags]
        path = tmp_path / f"{page.name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n\n".join(code), "utf-8")
    command = [
        sys.executable,
        "-m",
        "ruff",
        "check",
        "--isolated",
        "--select=F821,F823",
        tmp_path,
    ]
    checked = subprocess.run(command, capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout


def test_a_page_of_a_concept_shows_its_source():
    """The other concepts have their article in the docstring of the reference."""
    texts = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
    shown = set(re.findall(r"\{twins\} (\w+):", texts))
    modules = {
        path.stem for path in (ROOT / "src" / "posattn" / "reference").rglob("[a-z]*.py")
    }
    pages = {p.stem for p in PAGES if p.parent.name in ("attention", "position", "scale")}
    assert not modules & pages - shown


def test_the_glossary_has_a_sentence_or_two_and_a_link_for_each_word():
    text = (ROOT / "docs" / "reference" / "glossary.md").read_text(encoding="utf-8")
    words = text.partition("```{glossary}\n:sorted:\n")[2].partition("```")[0].strip()
    for entry in words.split("\n\n"):
        word, *said = entry.split("\n  ")
        assert len(said) == 1, word
        assert re.search(r"\(\{(doc|func|ref)\}`[^`]+`\)\.$", said[0]), word
        assert len(re.findall(r"\. (?=[A-Z])", said[0])) <= 1, word


TEXT = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
ROWS = re.findall(
    r"^\| (?!.*\| Here \|$).*",
    (ROOT / "docs" / "reference" / "sources.md").read_text("utf-8"),
    re.M,
)


def exists(target):
    """Whether a role of a row points at something that a page defines, or its path at a file or test."""
    role, name = target
    path, _, test = name.partition("::")
    return {
        "doc": lambda: any((ROOT / "docs").glob(f"{name.lstrip('/')}.*")),
        "ref": lambda: f"({name})=\n" in TEXT,
        "eq": lambda: f"$$ ({name})\n" in TEXT,
        "numref": lambda: re.search(rf"(name:|\{{caption\}}) {name}[,}}\n]", TEXT),
        "prf:ref": lambda: f":label: {name}\n" in TEXT,
        "test": lambda: f"\ndef {test}(" in (ROOT / path).read_text("utf-8"),
        "path": lambda: (ROOT / name).is_file(),
    }[role]()


def targets(row):
    """What the last column of a row points at: roles, tests and files."""
    here = row.rstrip(" |").rpartition(" | ")[2]
    for role, name in re.findall(r"(?:\{([\w:]+)\})?`([^`]+)`", here):
        yield role or ("test" if "::" in name else "path"), name


@pytest.mark.parametrize("row", ROWS, ids=[row[2:60] for row in ROWS])
def test_every_line_of_the_sources_has_a_place_that_exists(row):
    found = list(targets(row))
    assert found
    assert [target for target in found if not exists(target)] == []


def test_a_place_that_does_not_exist_is_noticed():
    test = "tests/build/test_rules.py::test_no"
    row = f"| x | {{doc}}`no_page`, {{eq}}`eq_no`, `{test}`, `docs/no.md` |"
    assert not any(exists(target) for target in targets(row))


def page(text, printed=""):
    """A page as its tests see it, of one cell that printed this."""
    ran = SimpleNamespace(code="x = 12", printed=printed, tags=set())
    code = SimpleNamespace(cell_type="code", source=ran.code)
    prose = SimpleNamespace(cell_type="markdown", source=text)
    return SimpleNamespace(
        path=Path("none.md"), tests="none", text=text, cells=[ran], notebook=[prose, code]
    )


def test_a_typed_number_must_stand_on_its_page():
    good = "---\nquantities: 7\n---\nThere are 12, 1,000, 7 and $3$ of 3.\n"
    assert rules.every_typed_number_is_on_the_page in rules.FOR_EVERY_PAGE
    rules.every_typed_number_is_on_the_page(page(good, "1000"))
    with pytest.raises(
        AssertionError, match=r"none\.md: 13 in line 1, 0\.5 in line 2: no cell"
    ):
        rules.every_typed_number_is_on_the_page(page("There are 12 and 13,\nand 0.5.\n"))


def test_a_printed_nan_must_be_explained():
    rules.what_looks_like_a_fault_is_explained(page("A row of NaN.", "nan"))
    with pytest.raises(AssertionError, match="prints nan, and no word"):
        rules.what_looks_like_a_fault_is_explained(page("A row.", "nan"))


def test_a_labelled_equation_must_have_a_test():
    rules.every_labelled_equation_has_a_test(page("$$x$$"))
    with pytest.raises(AssertionError, match="eq_x has no test"):
        rules.every_labelled_equation_has_a_test(page("$$x$$ (eq_x)"))


COMPARES = re.compile("agree|alike|close|equal|error")


def with_itself(code):
    """Comparisons of a thing with itself, which no fault makes fail; a call may return another each time."""
    for node in ast.walk(ast.parse(code)):
        sides = []
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
        elif isinstance(node, ast.Call):
            name = ast.unparse(node.func).rpartition(".")[2]
            sides = node.args if COMPARES.search(name) else []
        told = [ast.unparse(x) for x in sides if not isinstance(x, ast.Call)]
        if len({*told}) < len(told):
            yield f"line {node.lineno}: {ast.unparse(node)}"


def test_no_test_compares_a_thing_with_itself():
    for path in (ROOT / "tests").rglob("*.py"):
        assert [*with_itself(path.read_text("utf-8"))] == [], path
    for fault in ("got.x == got.x", "np.allclose(a, a, atol=1)", "assert_close(c, x, x)"):
        assert len([*with_itself(f"assert {fault} and f(x) == f(x) and g(x, x)")]) == 1
