"""The gate for code from scratch: short, plain, and compared with the library.

A cell tagged `scratch` is code that a reader could type. Before the next heading a cell tagged
`compare`, in the same framework, must set what the first defines against the library and assert
that they agree.
"""

import ast

from docutils import nodes
from sphinx.transforms import SphinxTransform
from sphinx.util import logging
from .twins import is_cell

LINES = 15
logger = logging.getLogger(__name__)


class CheckScratch(SphinxTransform):
    """Check every cell tagged `scratch`, before pairs of cells become tabs."""

    default_priority = 390

    def apply(self, **kwargs):
        """Warn, and so fail the build, with what was expected."""
        for cell in self.document.findall(lambda node: is_cell(node, "scratch")):
            name = "the from-scratch cell" + (
                f" for {framework(cell)}" * bool(framework(cell))
            )
            for fault in faults(cell):
                logger.warning("%s %s", name, fault, location=cell)


def faults(cell):
    """Yield what is wrong with a cell that is tagged `scratch`."""
    code, tree = read(cell)
    if tree is None:
        yield "must show plain Python"
        return
    lines = [line for line in code.splitlines() if line.strip()]
    if len(lines) > LINES:
        yield f"must have at most {LINES} lines, and has {len(lines)}"
    if any(
        getattr(n, "annotation", None) or getattr(n, "returns", None)
        for n in ast.walk(tree)
    ):
        yield "must have no annotations"
    followers = [node for node in following(cell) if framework(node) == framework(cell)]
    compares = [node for node in followers if is_cell(node, "compare")]
    if not compares:
        yield "must be followed by a cell tagged compare before the next heading"
        return
    # what a later from-scratch cell uses is compared with that cell
    chain = [node for node in followers if is_cell(node, "scratch")]
    wrong = [disagreement(defined(tree), chain, compare) for compare in compares]
    if all(wrong):
        yield f"must be compared with the library: its cell tagged compare {wrong[0]}"


def disagreement(own, chain, compare):
    """Return what keeps a cell from comparing the names `own` with the library, or None."""
    _, tree = read(compare)
    if tree is None:
        return "shows no plain Python"
    library = {
        (alias.asname or alias.name).split(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
        if (getattr(node, "module", None) or alias.name).split(".")[0] == "posattn"
    }
    used = set().union(*(loaded(read(node)[1]) for node in [compare, *chain]))
    if not library:
        return "imports nothing from posattn"
    if library & own:
        return f"hides {' and '.join(sorted(library & own))} behind the library's name"
    if not own & used:
        return f"does not use {' or '.join(sorted(own))}"
    if not any(isinstance(node, ast.Assert) for node in ast.walk(tree)):
        return "holds no assert"
    return None


def read(cell):
    """The code of a cell and its tree; neither where it is hidden, no tree where it is no Python."""
    code = next((n.astext() for n in cell.children if "cell_input" in n["classes"]), None)
    try:
        return code, ast.parse(code) if code is not None else None
    except SyntaxError:
        return code, None


def defined(tree):
    """The names that the top level of a cell gives."""
    functions = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    stored = (
        n for node in tree.body if isinstance(node, ast.Assign) for n in ast.walk(node)
    )
    return functions or {
        n.id for n in stored if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
    }


def loaded(tree):
    """The names that a cell uses."""
    names = (n for n in ast.walk(tree) if isinstance(n, ast.Name)) if tree else ()
    return {n.id for n in names if isinstance(n.ctx, ast.Load)}


def framework(cell):
    """The framework of a cell, or None."""
    return next((name for name in ("torch", "jax") if is_cell(cell, name)), None)


def following(cell):
    """Yield what stands after a cell and before the next heading."""
    for node in cell.findall(include_self=False, descend=False, siblings=True):
        if isinstance(node, nodes.section):
            return
        yield node


def setup(app):
    """Register with Sphinx."""
    app.add_transform(CheckScratch)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
