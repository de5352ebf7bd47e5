"""Code from scratch is short, plain, and compared with the library.

A cell tagged `scratch` is code that a reader could type. Before the next heading a cell tagged `compare`,
in the same framework, sets what the first defines against the library and asserts that they agree.
"""

import ast
import re

import pytest

from tests.pages.reading import PAGES, Page

LINES = 15


def tags(cell):
    """The tags of a cell of code."""
    return set(cell.metadata.get("tags", ())) if cell.cell_type == "code" else set()


def followers(cells, place):
    """The cells of the same framework after a cell and before the next heading."""
    framework = tags(cells[place]) & {"torch", "jax"}
    for cell in cells[place + 1 :]:
        if cell.cell_type == "markdown" and re.search("^#", cell.source, re.MULTILINE):
            return
        if cell.cell_type == "code" and tags(cell) & {"torch", "jax"} == framework:
            yield cell


FROM_SCRATCH = [
    pytest.param(cell, list(followers(cells, place)), id=f"{path.stem}-{place}")
    for path in PAGES
    for cells in [Page(path).notebook]
    for place, cell in enumerate(cells)
    if "scratch" in tags(cell)
]


def defined(tree):
    """The names that the top level of a cell gives: its functions, or else its variables."""
    functions = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    assigned = [
        n for node in tree.body if isinstance(node, ast.Assign) for n in node.targets
    ]
    names = (n for target in assigned for n in ast.walk(target) if isinstance(n, ast.Name))
    return functions or {name.id for name in names}


def loaded(tree):
    """The names that a cell uses."""
    names = (node for node in ast.walk(tree) if isinstance(node, ast.Name))
    return {name.id for name in names if isinstance(name.ctx, ast.Load)}


def from_library(tree):
    """The names under which a cell imports from posattn."""
    return {
        (alias.asname or alias.name).split(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
        if (getattr(node, "module", None) or alias.name).split(".")[0] == "posattn"
    }


@pytest.mark.parametrize(("cell", "after"), FROM_SCRATCH)
def test_code_from_scratch_is_short_and_plain(cell, after):
    lines = [line for line in cell.source.splitlines() if line.strip()]
    assert len(lines) <= LINES, f"at most {LINES} lines"
    for node in ast.walk(ast.parse(cell.source)):
        annotated = getattr(node, "annotation", None) or getattr(node, "returns", None)
        assert not annotated, "no annotations"


@pytest.mark.parametrize(("cell", "after"), FROM_SCRATCH)
def test_code_from_scratch_is_compared_with_the_library(cell, after):
    own = defined(ast.parse(cell.source))
    compares = [ast.parse(c.source) for c in after if "compare" in tags(c)]
    assert compares, "no cell tagged compare follows before the next heading"
    # what a later from-scratch cell uses is compared with that cell
    used = set().union(
        *(loaded(ast.parse(c.source)) for c in after if "scratch" in tags(c))
    )
    agree = [
        tree
        for tree in compares
        if from_library(tree) - own
        and own & (used | loaded(tree))
        and any(isinstance(node, ast.Assert) for node in ast.walk(tree))
    ]
    assert agree, (
        f"the cell tagged compare must import from posattn, use {' or '.join(sorted(own))}, "
        "and assert that they agree"
    )
    for tree in agree:
        hidden = from_library(tree) & own
        assert not hidden, f"{' and '.join(hidden)} hides the library's name"
