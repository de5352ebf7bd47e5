"""Frameworks side by side: source and executed cells in synced tabs.

The directive `{twins} concept:name` shows the library's own definition from every column that is
asked for; a missing twin fails the build. Its content says what the library adds, and on the web both
are folded.
Cells tagged `torch` and `jax` that follow each other become one tab set.
They must print the same text and draw the same figure, or the build fails; the figure stands once,
below the tabs. A comparison that follows code from scratch at once stands in the tabs of that code.
Where `docs/_ports` has cells for a page, the tab sets of the page go on with the ports, whose outputs
were recorded; a recording that is stale or prints something else fails the build too. Code from scratch
and its comparison have no ports.
"""

import ast
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import ClassVar

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.transforms import SphinxTransform
from sphinx.transforms.post_transforms import SphinxPostTransform
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective
from sphinx_design.shared import create_component

from . import recordings

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


def home(column, name):
    """Return the file that defines a public name of a column: its `__init__` imports it from there."""
    package = Path(str(files("posattn")))
    if column in recordings.PORTS:
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
    lines = source.splitlines()
    first = min([found[0].lineno, *(d.lineno for d in found[0].decorator_list)])
    drop = set()
    for node in ast.walk(found[0]):
        if (
            isinstance(node, ast.FunctionDef | ast.ClassDef)
            and ast.get_docstring(node) is not None
            and len(node.body) > 1  # or nothing would be left
        ):
            docstring = node.body[0]
            drop.update(range(docstring.lineno, docstring.end_lineno + 1))
            if not lines[docstring.end_lineno].strip():
                drop.add(docstring.end_lineno + 1)
    return "\n".join(
        lines[i - 1] for i in range(first, found[0].end_lineno + 1) if i not in drop
    )


class Twins(SphinxDirective):
    """Show `concept:name` as it stands in the library, in tabs."""

    required_arguments = 1
    has_content = True
    option_spec: ClassVar = {"columns": directives.unchanged}

    def run(self):
        """Read the definitions of all columns and put them into tabs, below what is said of them."""
        name = self.arguments[0].partition(":")[2]
        blocks = {}
        ports = [path.stem for path in scripts(self.env.docname)]
        for column in self.options.get("columns", " ".join(["torch jax", *ports])).split():
            path = home(column, name)
            self.env.note_dependency(str(path))
            text = definition(path, name)
            place = f"ports.{column}" if column in recordings.PORTS else column
            if text is None:
                raise self.error(f"no twin: posattn.{place} has no {name}")
            block = nodes.literal_block(
                text, text, language="python", twin=f"posattn.{place}.{name}"
            )
            blocks[column] = [block]
        shown = [tab_set(blocks)] if len(blocks) > 1 else blocks.popitem()[1]
        said = self.parse_content_to_nodes()
        return [nodes.container("", *said, *shown, classes=["library"], twin=name)]


class FoldLibrary(SphinxPostTransform):
    """Fold the library's version on the web, where a reader can open it."""

    default_priority = 190
    builders = ("html", "dirhtml")

    def run(self, **kwargs):
        """Wrap the boxes into `details` elements, which need no script."""
        for box in list(self.document.findall(nodes.container)):
            if "twin" not in box:
                continue
            name = f"The library's version: <code>{escape(box['twin'])}</code>"
            start = f'<details class="library"><summary>{name}</summary>'
            box["classes"] = []
            box.replace_self(
                [
                    nodes.raw("", start, format="html"),
                    *box.children,
                    nodes.raw("", "</details>", format="html"),
                ]
            )


class TwinCells(SphinxTransform):
    """Join each cell tagged `torch` with the cell tagged `jax` that follows it."""

    default_priority = 400

    def apply(self, **kwargs):
        """Replace every pair by a tab set and the figure that both drew."""
        ports = scripts(self.env.docname)
        cells = list(self.document.findall(lambda node: is_cell(node, "torch")))
        ported = [c for c in cells if not (is_cell(c, "scratch") or is_cell(c, "compare"))]
        for cell in cells:
            twin = cell.next_node(descend=False, siblings=True)
            if not is_cell(twin, "jax"):
                logger.warning(
                    "a cell tagged torch is not followed by one tagged jax", location=cell
                )
                continue
            drawn, drawn_by_twin = take_figures(cell), take_figures(twin)
            if printed(cell) != printed(twin):
                logger.warning("PyTorch and JAX print different text", location=cell)
            if images(drawn) != images(drawn_by_twin):
                logger.warning("PyTorch and JAX draw different figures", location=cell)
            twin.parent.remove(twin)
            tabs = {"torch": [cell.deepcopy()], "jax": [twin]}
            for script in ports if cell in ported else ():
                number = ported.index(cell)
                try:
                    tabs[script.stem] = recorded(script, number, len(ported), printed(cell))
                except ValueError as error:
                    logger.warning("%s", error, location=cell)
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


def scripts(docname):
    """The cells of the ports for a page, in the order of the tabs."""
    folder = recordings.SCRIPTS / Path(docname).name
    return [path for port in recordings.PORTS if (path := folder / f"{port}.py").is_file()]


def recorded(script, number, count, wanted):
    """A cell of a port, what it printed and with which versions."""
    recording, cells = recordings.load(script), recordings.cells(script)
    name = script.relative_to(recordings.DOCS)
    if recording is None:
        raise ValueError(f"the recording of {name} is stale: run nox -s ports")
    if len(cells) != count:
        raise ValueError(f"{name} has {len(cells)} cells, and its page {count} pairs")
    text = recording["printed"][number].rstrip()
    if text != wanted.rstrip():
        raise ValueError(f"PyTorch and {LABELS[script.stem]} print different text")
    code = nodes.literal_block(cells[number], cells[number], language="python")
    output = nodes.literal_block(text, text, language="none")
    with_versions = ", ".join(" ".join(item) for item in recording["versions"].items())
    note = f"Recorded by nox -s ports: {with_versions}."
    return [
        nodes.container(
            "",
            nodes.container("", code, classes=["cell_input"]),
            nodes.container("", output, classes=["cell_output"]),
            classes=["cell"],
        ),
        nodes.paragraph(note, note, classes=["recorded"]),
    ]


def is_cell(node, tag):
    """Whether a node is an executed cell with this tag."""
    return (
        isinstance(node, nodes.container)
        and f"tag_{tag}" in node["classes"]
        and "cell" in node["classes"]
    )


def outputs(cell):
    """The containers of a cell's outputs."""
    return cell.findall(
        lambda n: (
            isinstance(n, nodes.container) and n.get("nb_element") == "cell_code_output"
        )
    )


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
    app.add_post_transform(FoldLibrary)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
