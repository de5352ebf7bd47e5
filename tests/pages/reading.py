"""The pages of the book as their tests see them: words, cells, and the names that the cells define."""

import ast
import contextlib
import io
import re
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

from myst_nb.core.read import read_myst_markdown_notebook

DOCS = Path(__file__).parents[2] / "docs"
TESTS = Path(__file__).parent
HIDDEN = {"remove-cell", "remove-input"}
PAGES = [path for path in sorted(DOCS.rglob("*.md")) if path.parent.name != "slides"]
ROLE = re.compile(r"\{[\w:]+\}`([^`]*)`")
EQUATION = re.compile(r"\$\$((?:(?!\$\$).)+)\$\$\s*\((eq_[^)\s]+)\)", re.DOTALL)
GLUED = re.compile(r"\{glue:text\}`[^`]*`")


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
    """A page: after `run`, `torch` and `jax` hold the names that each framework's reader has.

    `glued` holds what hidden cells computed for the text.
    """

    path: Path
    torch: SimpleNamespace = field(default_factory=SimpleNamespace)
    jax: SimpleNamespace = field(default_factory=SimpleNamespace)
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
    def printed(self):
        """All that the visible cells printed, when they ran."""
        return "".join(cell.printed for cell in self.cells if cell.visible)

    def run(self):
        """Run all cells in order, as the build does."""
        names = {"__name__": "__main__"}
        glue = mock.patch("myst_nb.glue", self._glue)
        with contextlib.chdir(self.path.parent), glue:
            for number, cell in enumerate(self.cells, 1):
                before = dict(names)
                out = io.StringIO()
                with contextlib.redirect_stdout(out):
                    exec(
                        compile(cell.code, f"{self.path.name}, cell {number}", "exec"),
                        names,
                    )
                cell.printed = out.getvalue()
                new = {k: v for k, v in names.items() if before.get(k, before) is not v}
                for framework in {"torch", "jax"} & cell.tags or {"torch", "jax"}:
                    vars(getattr(self, framework)).update(new)
        return self

    def _glue(self, name, value, display=True):
        self.glued[name] = value


def page_of(name):
    """The page that `tests/pages/test_<name>.py` is about."""
    (path,) = (path for path in PAGES if path.stem == name)
    return Page(path)


def pages_with_tests():
    """The names of the pages that have tests."""
    return [path.stem for path in PAGES if (TESTS / f"test_{path.stem}.py").is_file()]


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
