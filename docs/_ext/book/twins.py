"""Frameworks side by side: source and executed cells in synced tabs.

The directive `{twins} concept:name` shows the library's own definition from every column that is
asked for; a missing twin fails the build. Its content says what the library adds, and on the web both
are folded.
Cells tagged `torch` and `jax` that follow each other become one tab set.
They must print the same text and draw the same figure, or the build fails; the figure stands once,
below the tabs. A comparison that follows code from scratch at once stands in the tabs of that code.
Where `docs/_ports` has cells for a page, the tab sets of the page go on with the ports, whose outputs
`nox -s ports` has recorded; a recording that prints something else fails the build too. Code from scratch
and its comparison have no ports.
"""

import ast
import json
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import ClassVar

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.transforms import SphinxTransform
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective
from sphinx_design.shared import create_component

from .cells import is_cell
from .site import fold

PORTS = ("tensorflow", "mlx", "mxnet")
LABELS = {
    "reference": "NumPy reference",
    "torch": "PyTorch",
    "jax": "JAX",
    "tensorflow": "TensorFlow",
    "mlx": "MLX",
    "mxnet": "MXNet",
}
logger = logging.getLogger(__name__)


def tab_set(contents):
    """Build sphinx-design's tab set, of which the reader's choice holds on every page."""
    items = []
    for column, children in contents.items():
        label = nodes.rubric(LABELS[column], LABELS[column], classes=["sd-tab-label"])
        label["sync_group"], label["sync_id"] = "framework", column
        panel = create_component(
            "tab-content", classes=["sd-tab-content"], children=children
        )
        items.append(
            create_component("tab-item", classes=["sd-tab-item"], children=[label, panel])
        )
    return create_component("tab-set", classes=["sd-tab-set"], children=items)


def panel(tabs, column):
    """What the tab of a column holds, or the first of the set."""
    held = [item for item in tabs.children if item[0].get("sync_id") == column]
    return (held or tabs.children)[0][1].children


def home(column, name):
    """Return the file that defines a public name of a column: its `__init__` imports it from there."""
    package = Path(str(files("posattn")))
    if column in PORTS:
        return package / "ports" / f"{column}.py"
    entry = package / column / "__init__.py"
    for node in ast.parse(entry.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ImportFrom) and name in {a.name for a in node.names}:
            return package.parent / (node.module.replace(".", "/") + ".py")
    return entry


def definition(path, name):
    """Return the source of a top-level definition without its docstrings, or None."""
    source = path.read_text(encoding="utf-8")
    found = [n for n in ast.parse(source).body if getattr(n, "name", None) == name]
    if not found:
        return None
    lines = dict(enumerate(source.splitlines(), 1))
    for node in ast.walk(found[0]):
        has_docstring = (
            isinstance(node, ast.FunctionDef | ast.ClassDef) and len(node.body) > 1
        )
        if has_docstring and ast.get_docstring(node) is not None:
            for number in range(node.body[0].lineno, node.body[0].end_lineno + 2):
                if number <= node.body[0].end_lineno or not lines[number].strip():
                    lines[number] = None
    first = min([found[0].lineno, *(d.lineno for d in found[0].decorator_list)])
    held = (lines[number] for number in range(first, found[0].end_lineno + 1))
    return "\n".join(line for line in held if line is not None)


class Twins(SphinxDirective):
    """Show `concept:name` as it stands in the library, in tabs."""

    required_arguments = 1
    has_content = True
    option_spec: ClassVar = {"columns": directives.unchanged}

    def run(self):
        """Read the definitions of all columns and put them into tabs, below what is said of them."""
        name = self.arguments[0].partition(":")[2]
        blocks = {}
        ports = [path.stem for path in scripts(self.env)]
        for column in self.options.get("columns", " ".join(["torch jax", *ports])).split():
            path = home(column, name)
            self.env.note_dependency(str(path))
            text = definition(path, name)
            place = f"ports.{column}" if column in PORTS else column
            if text is None:
                raise self.error(f"no twin: posattn.{place} has no {name}")
            block = nodes.literal_block(
                text, text, language="python", twin=f"posattn.{place}.{name}"
            )
            blocks[column] = [block]
        shown = [tab_set(blocks)] if len(blocks) > 1 else blocks.popitem()[1]
        said = self.parse_content_to_nodes()
        summary = f"The library's version: <code>{escape(name)}</code>"
        return [fold("", *said, *shown, classes=["library"], summary=summary)]


class TwinCells(SphinxTransform):
    """Join each cell tagged `torch` with the cell tagged `jax` that follows it."""

    default_priority = 400

    def apply(self, **kwargs):
        """Replace every pair by a tab set and the figure that both drew."""
        ports = scripts(self.env)
        cells = list(self.document.findall(lambda node: is_cell(node, "torch")))
        ported = [c for c in cells if not (is_cell(c, "scratch") or is_cell(c, "compare"))]
        for cell in cells:
            twin = cell.next_node(descend=False, siblings=True)
            if not is_cell(twin, "jax"):
                said = "a cell tagged torch is not followed by one tagged jax"
                logger.warning(said, location=cell)
                continue
            drawn, drawn_by_twin = take_figures(cell), take_figures(twin)
            if printed(cell) != printed(twin):
                logger.warning("PyTorch and JAX print different text", location=cell)
            if images(drawn) != images(drawn_by_twin):
                logger.warning("PyTorch and JAX draw different figures", location=cell)
            tabs = {"torch": [cell.deepcopy()], "jax": [twin]}
            for script in ports if cell in ported else ():
                code = script.read_text(encoding="utf-8").split("# %%\n")[1:]
                if len(code) != len(ported):
                    name = script.relative_to(self.env.srcdir)
                    said = f"{name} has {len(code)} cells, and its page {len(ported)} pairs"
                    logger.warning("%s", said, location=cell)
                    continue
                number = ported.index(cell)
                tabs[script.stem] = recorded(script, code[number].strip(), number)
                if tabs[script.stem][0][-1].astext() != printed(cell).rstrip():
                    said = "PyTorch and %s print different text"
                    logger.warning(said, LABELS[script.stem], location=cell)
            twin.parent.remove(twin)
            self.place(tabs, cell, drawn)

    def place(self, tabs, cell, drawn):
        """Put the tabs, or for a comparison those of its code from scratch, in the place of a cell."""
        place = cell.parent.index(cell)
        above = cell.parent[place - 1] if place else None
        if is_cell(cell, "compare") and "scratch" in getattr(above, "attributes", ()):
            for item, children in zip(above.children, tabs.values(), strict=True):
                item[-1] += children
            cell.parent[place : place + 1] = drawn
        else:
            tabs = tab_set(tabs)
            if is_cell(cell, "scratch"):
                tabs["scratch"] = True
            cell["classes"] = []
            cell.replace_self([tabs, *drawn])


def scripts(env):
    """The cells of the ports for the page that is read, in the order of the tabs."""
    folder = Path(env.srcdir, "_ports", Path(env.docname).name)
    return [path for port in PORTS if (path := folder / f"{port}.py").is_file()]


def recorded(script, code, number):
    """A cell of a port, what it printed when `nox -s ports` ran it, and with which versions."""
    recording = json.loads(script.with_suffix(".json").read_text(encoding="utf-8"))
    text = recording["printed"][number].rstrip()
    source = nodes.literal_block(code, code, language="python")
    output = nodes.literal_block(text, text, language="none")
    with_versions = ", ".join(" ".join(item) for item in recording["versions"].items())
    note = f"Recorded by nox -s ports: {with_versions}."
    shown = [
        nodes.container("", source, classes=["cell_input"]),
        nodes.container("", output, classes=["cell_output"]),
    ]
    return [
        nodes.container("", *shown, classes=["cell"]),
        nodes.paragraph(note, note, classes=["recorded"]),
    ]


def outputs(cell):
    """The containers of a cell's outputs."""
    found = cell.findall(nodes.container)
    return (n for n in found if n.get("nb_element") == "cell_code_output")


def printed(cell):
    """All text that a cell printed."""
    return "\n".join(output.astext() for output in outputs(cell))


def take_figures(cell):
    """Remove the figures from a cell's outputs and return them."""
    taken = []
    for output in list(outputs(cell)):
        for child in list(output.children):
            if next(child.findall(nodes.image), None) is not None:
                output.remove(child)
                taken.append(child)
        if not output.children:
            output.parent.remove(output)
    return taken


def images(figures):
    """The vector images in figures, each named by the hash of its content."""
    uris = (image["uri"] for figure in figures for image in figure.findall(nodes.image))
    return sorted(uri for uri in uris if uri.endswith(".svg"))


def setup(app):
    """Register with Sphinx."""
    app.add_directive("twins", Twins)
    app.add_transform(TwinCells)
