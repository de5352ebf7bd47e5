"""The pages of the book as their tests see them: words, cells, and what the build computed.

A page is not run again: `nox -s docs` and `nox -s page` keep what its cells printed, named and glued.
"""

import ast
import pickle
import re
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from types import SimpleNamespace

from myst_nb.core.read import read_myst_markdown_notebook

from docs._ext.book import kept

DOCS = Path(__file__).parents[2] / "docs"
WORK = DOCS.parent / "build" / "work"
TESTS = Path(__file__).parent
HIDDEN = {"remove-cell", "remove-input"}
PAGES = [path for path in sorted(DOCS.rglob("*.md")) if path.parent.name != "slides"]
QUESTIONS = [path for path in PAGES if path.parent.name == "questions"]
ROLE = re.compile(r"\{[\w:]+\}`([^`]*)`")
EQUATION = re.compile(r"\$\$((?:(?!\$\$).)+)\$\$\s*\((eq_[^)\s]+)\)", re.DOTALL)
GLUED = re.compile(r"\{glue:text\}`[^`]*`")


class Names(SimpleNamespace):
    """Names whose values are unpickled when they are asked for."""

    def __init__(self, pickles):
        super().__init__()
        self._pickles = pickles

    def __getattr__(self, name):
        """The value of a name."""
        if name.startswith("_") or name not in self._pickles:
            raise AttributeError(f"no cell has kept {name}")
        value = pickle.loads(self._pickles[name])
        setattr(self, name, value)
        return value


@dataclass
class Cell:
    """A code cell: what it says, its tags, and what it printed when it was run."""

    code: str
    tags: frozenset
    printed: str = ""

    @property
    def visible(self):
        """Whether a reader sees its code."""
        return not HIDDEN & self.tags


@dataclass
class Page:
    """A page: after `load`, `torch` and `jax` hold the names that each framework's reader has.

    `glued` holds what hidden cells computed for the text.
    """

    path: Path
    torch: Names = None
    jax: Names = None
    glued: dict = field(default_factory=dict)

    @cached_property
    def text(self):
        """The source of the page."""
        return self.path.read_text(encoding="utf-8")

    @cached_property
    def notebook(self):
        """Its cells of prose and code, as MyST-NB reads them."""
        return read_myst_markdown_notebook(self.text).cells

    @cached_property
    def cells(self):
        """Its code cells."""
        return [
            Cell(cell.source, frozenset(cell.metadata.get("tags", ())))
            for cell in self.notebook
            if cell.cell_type == "code"
        ]

    @property
    def name(self):
        """The page as `nox -s page` takes it."""
        return self.path.relative_to(DOCS).with_suffix("").as_posix()

    @property
    def tests(self):
        """What its file of tests is called after; the questions share one."""
        return self.path.parent.name if self.path in QUESTIONS else self.path.stem

    @property
    def printed(self):
        """All that the visible cells printed, when they ran."""
        return "".join(cell.printed for cell in self.cells if cell.visible)

    def load(self):
        """Take what the build computed; return whether it has run this page with the library as it is."""
        if not self.cells:
            return True
        cells = kept.load(WORK / "kept", [cell.code for cell in self.cells])
        if cells is None:
            return False
        pickles = {"torch": {}, "jax": {}}
        for cell, (outputs, new) in zip(self.cells, cells, strict=True):
            cell.printed = "".join(
                output.text
                for output in outputs
                if output.output_type == "stream" and output.name == "stdout"
            )
            for framework in pickles.keys() & cell.tags or pickles:
                pickles[framework] |= new
            for name, text in kept.glued(outputs).items():
                self.glued[name] = text
                with suppress(ValueError, SyntaxError):  # a figure
                    self.glued[name] = ast.literal_eval(text)
        self.torch, self.jax = (Names(found) for found in pickles.values())
        return True


def page_of(name):
    """The page that `tests/pages/test_<name>.py` is about."""
    (path,) = (path for path in PAGES if path.stem == name)
    return Page(path)


def pages_with_tests():
    """The names of the pages that have tests."""
    return [
        path.stem for path in PAGES if (TESTS / f"test_{Page(path).tests}.py").is_file()
    ]


def equations(text):
    """The labelled equations of a page, each with its LaTeX."""
    return {label: latex for latex, label in EQUATION.findall(text)}


def bare(text):
    """Text without white space and marks, in which a pasted number is an ellipsis."""
    return re.sub(r"[\s*`]", "", ROLE.sub(r"\1", GLUED.sub("…", text)))


def functions_of(name):
    """The tests of a page, as trees."""
    path = TESTS / f"test_{name}.py"
    tree = ast.parse(path.read_text(encoding="utf-8") if path.is_file() else "")
    return [
        node
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    ]


def literals(name):
    """The numbers that stand in the tests of a page."""
    return {
        float(node.value)
        for function in functions_of(name)
        for node in ast.walk(function)
        if isinstance(node, ast.Constant) and type(node.value) in (int, float)
    }
