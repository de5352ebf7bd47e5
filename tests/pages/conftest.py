"""The fixture `page`: the page that a file of tests is about, with what its cells printed and named.

And the tests that every such file ends with.
"""

import ast
import re

import jaxtyping
import matplotlib
import pytest
import yaml

from tests.conftest import need
from tests.pages.prose import FRONT, formulas, sentences
from tests.pages.reading import (
    bare,
    equations,
    functions_of,
    literals,
    page_of,
    pages_with_tests,
)

matplotlib.use("svg")
FAULT = re.compile(r"\b(?:False|NaN)\b", re.IGNORECASE)
TYPED = re.compile(r"(?<![\w.,])\d+(?:,\d{3})*(?:\.\d+)?(?![\w%])(?!\.\d)")
ANY = re.compile(r"\d+(?:\.\d+)?")
APART = re.compile(r"(?<=\d)(?:,|\\,|\{,\}|_)(?=\d{3})")  # between thousands
FRAMEWORKS = {"torch", "jax"}
EXERCISES = re.compile(
    r"^(##+) [^\n]*exercises\n(.*?)(?=^##? |\Z)", re.I | re.M | re.DOTALL
)
RUN = re.compile(r"^`{3,}\{(?:code-cell|doctest)\}|^>>> ", re.MULTILINE)


def built(found):
    """A page with what the build computed."""
    need(found.load(), f"{found.name} was not built as it is: nox -s page -- {found.name}")
    return found


@pytest.fixture(scope="module")
def page(request):
    """The page with what the build computed, without the checks of annotations that tests switch on."""
    found = built(page_of(request.module.__name__.rpartition("test_")[2]))
    jaxtyping.config.update("jaxtyping_disable", True)
    yield found
    jaxtyping.config.update("jaxtyping_disable", False)


class PageTests(pytest.Module):
    """The tests of a page."""

    def collect(self):
        """Add the tests that hold for every page."""
        yield from super().collect()
        for last in FOR_EVERY_PAGE:
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

    Or a test of the page asserts it. Or it stands in the front matter, under `quantities`, if a source
    says it. Whatever else a sentence counts is pasted from the cell that computed it (`glue`), and cannot
    be wrong.
    """
    ran = [text for cell in page.cells for text in (cell.code, cell.printed)]
    known = numbers(*ran, *formulas(page.text), quantities(page.text))
    known |= literals(page.tests)
    missing = [
        f"{number} in line {line}"
        for line, words in sentences(page.text)
        for number in TYPED.findall(words)
        if numbers(number) - known
    ]
    assert not missing, (
        f"{page.path.name}: {', '.join(missing)}: no cell, output, equation or test has it; paste it "
        "with glue, compute it in a test, or list it under quantities if a source says it"
    )


def every_labelled_equation_has_a_test(page):
    """The test is named after the equation, quotes it, and asserts something."""
    known = {function.name: function for function in functions_of(page.tests)}
    for label, latex in equations(page.text).items():
        name = "test_" + label.replace("-", "_")
        assert name in known, f"{label} has no test: write {name} in test_{page.tests}.py"
        quoted = bare(ast.get_docstring(known[name]) or "")
        assert bare(latex) in quoted, f"{name} must quote its equation: {latex}"
        asserts = [node for node in ast.walk(known[name]) if isinstance(node, ast.Assert)]
        assert asserts, f"{name} asserts nothing"


def tags(cell):
    """The tags of a cell."""
    return {*cell.metadata.get("tags", ())}


def given(tree):
    """The names that a cell gives: its functions and classes, or else its variables."""
    kinds = (ast.FunctionDef, ast.ClassDef)
    functions = {node.name for node in tree.body if isinstance(node, kinds)}
    assigned = [node for node in tree.body if isinstance(node, ast.Assign)]
    return functions or {name for node in assigned for name in named(node, ast.Store)}


def named(tree, context):
    """The names that code loads or stores."""
    names = (node for node in ast.walk(tree) if isinstance(node, ast.Name))
    return {name.id for name in names if isinstance(name.ctx, context)}


def imported(tree):
    """The names that a cell imports from the library."""
    return {
        (alias.asname or alias.name).split(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom) and "posattn" in ast.unparse(node)
        for alias in node.names
    }


def code_from_scratch_is_short_and_compared(page):
    """A cell tagged `scratch` is code that a reader could type: at most 15 lines, without annotations.

    Before the next heading a cell tagged `compare`, in the same framework, asserts that the library agrees.
    """
    cells = page.notebook
    for place, cell in enumerate(cells):
        if "scratch" not in tags(cell):
            continue
        tree, later, compares = ast.parse(cell.source), set(), []
        lines = [line for line in cell.source.splitlines() if line.strip()]
        assert len(lines) <= 15, "code from scratch has at most 15 lines"
        for node in ast.walk(tree):
            hints = getattr(node, "annotation", None) or getattr(node, "returns", None)
            assert not hints, "code from scratch has no annotations"
        for after in cells[place + 1 :]:
            if after.cell_type == "markdown":
                if re.search("^#", after.source, re.MULTILINE):
                    break
            elif tags(after) & FRAMEWORKS == tags(cell) & FRAMEWORKS:
                code = ast.parse(after.source)
                later |= named(code, ast.Load) if "scratch" in tags(after) else set()
                compares += [code] if "compare" in tags(after) else []
        own = given(tree)
        agree = [
            code
            for code in compares
            if imported(code) - own
            and own & (later | named(code, ast.Load))
            and any(isinstance(node, ast.Assert) for node in ast.walk(code))
        ]
        assert agree, (
            f"before the next heading a cell tagged compare must import from posattn, use "
            f"{' or '.join(sorted(own))}, and assert that they agree"
        )
        hidden = {name for code in agree for name in imported(code) & own}
        assert not hidden, f"{' and '.join(hidden)} hides the library's name"


def exercises_have_numbers_and_solutions_that_run(page):
    """They are the sections of a section whose title ends in "exercises"."""
    for level, body in EXERCISES.findall(page.text):
        _, *exercises = re.split(rf"^{level}# (?=\S)", body, flags=re.MULTILINE)
        assert exercises, "no exercise: write sections `### 1. Name`, `### 2. Name`"
        for number, exercise in enumerate(exercises, 1):
            title, _, rest = exercise.partition("\n")
            assert title.startswith(f"{number}. "), f"{title} must begin with {number}."
            solution = rest.partition("{.solution}\n")[2]
            assert RUN.search(solution), f"{title} has no solution that the build runs"


FOR_EVERY_PAGE = (
    what_looks_like_a_fault_is_explained,
    every_typed_number_is_on_the_page,
    every_labelled_equation_has_a_test,
    code_from_scratch_is_short_and_compared,
    exercises_have_numbers_and_solutions_that_run,
)
