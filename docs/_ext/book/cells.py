"""Every number in a sentence leads to the cell that computed it.

The cells of a page are numbered in the order in which the build runs them. On the web a cell shows its
number, a pasted number names the cell that computed it and links to it, and the cells that the text
does not show stand folded at the end of the page.
"""

from functools import lru_cache
from html import escape
from pathlib import Path

import nbformat
from docutils import nodes
from myst_nb.ext.glue.roles import PasteTextRole
from sphinx.transforms.post_transforms import SphinxPostTransform

from .site import fold, html

NAMES = {"scratch": "From scratch"}
COMPARED = "Compared with the library"
HIDDEN = {"remove-cell", "remove-input"}


def is_cell(node, *tags, visible=False):
    """Whether a node is an executed cell that has these tags, and whose code the reader sees."""
    return (
        isinstance(node, nodes.container)
        and node.get("nb_element") == "cell_code"
        and {f"tag_{tag}" for tag in tags} <= set(node["classes"])
        and (not visible or any("cell_input" in part["classes"] for part in node.children))
    )


def cells(env, docname):
    """The code cells of a page as MyST-NB wrote them when it ran the page, by their place among all cells."""
    path = Path(env.mystnb_config.output_folder, f"{docname}.ipynb")
    return read(path, path.stat().st_mtime_ns) if path.is_file() else {}


@lru_cache(maxsize=8)
def read(path, time):
    """The code cells of a notebook, each with its number."""
    found = {}
    for place, cell in enumerate(nbformat.read(path, as_version=4).cells):
        if cell.cell_type == "code":
            cell.metadata.number = len(found) + 1
            found[place] = cell
    return found


def is_hidden(cell):
    """Whether the text does not show the code of a cell."""
    return bool(HIDDEN & set(cell.metadata.get("tags", ())))


def head(cell):
    """The bar of a cell: what it is, and its number as a link to itself."""
    number, tags = cell.metadata.number, cell.metadata.get("tags", ())
    name = next((NAMES[tag] for tag in NAMES if tag in tags), "")
    if is_hidden(cell) and (glued := cell.metadata.get("glued")):
        name = "Computes " + ", ".join(f"<code>{escape(n)}</code>" for n in glued)
    return html(
        f'<p class="cell-head"><span>{name}</span> '
        f'<a href="#cell-{number}" aria-label="Link to cell {number}">cell {number}</a></p>'
    )


class Number(PasteTextRole):
    """Paste a text as MyST-NB does, and keep its name and page."""

    def run(self):
        """Wrap what is pasted, now or later."""
        pasted, messages = super().run()
        page = self.document.settings.env.docname
        name = self.text.rpartition(":")[0] or self.text
        for node in pasted:
            page = node.get("refdoc", page)
        mark = nodes.inline("", "", *pasted, glued=name.rpartition("::")[2], page=page)
        return [mark], messages


class ShowOrigins(SphinxPostTransform):
    """Number the cells, mark the pasted numbers, and fold comparisons and the hidden cells."""

    default_priority = 280
    builders = ("html", "dirhtml")

    def run(self, **kwargs):
        """Change the page for the web only."""
        here = cells(self.env, self.env.docname)
        for node in self.document.findall(is_cell):
            cell = here[node["cell_index"]]
            if not is_hidden(cell):
                node["ids"].append(f"cell-{cell.metadata.number}")
                if "compare" in cell.metadata.get("tags", ()):  # what it prints is enough
                    node[0] = fold("", node[0], classes=["check"], summary=COMPARED)
                node.insert(0, head(cell))
        for mark in list(self.document.findall(nodes.inline)):
            if "glued" in mark:
                self.mark(mark)
        hidden = [cell for cell in here.values() if is_hidden(cell)]
        if hidden:
            self.document.next_node(nodes.section).append(behind(hidden))

    def mark(self, mark):
        """Link a pasted number to its cell, if it is not part of a link."""
        if isinstance(mark.parent.parent, nodes.reference):
            return
        page, name = mark["page"], mark["glued"]
        made = (
            c for c in cells(self.env, page).values() if name in c.metadata.get("glued", ())
        )
        number = next((cell.metadata.number for cell in made), None)
        if number is None:
            return
        there, of_page = "", ""
        if page != self.env.docname:
            there = self.app.builder.get_relative_uri(self.env.docname, page)
            of_page = f" of {self.env.titles[page].astext()}"
        origin = escape(f"computed by cell {number}{of_page}: {name}")
        link = (
            f'<a class="computed" href="{there}#cell-{number}" aria-description="{origin}">'
        )
        mark.replace_self(html(f"{link}{escape(mark.astext())}</a>"))


def behind(hidden):
    """The fold that shows the hidden cells."""
    note = "The text does not show these cells; the build ran them with the others, in this order."
    shown = fold(
        "", nodes.paragraph(note, note), classes=["behind"], summary="Behind this page"
    )
    for cell in hidden:
        code = nodes.literal_block(cell.source, cell.source, language="python")
        source = nodes.container("", code, classes=["cell_input"])
        name = f"cell-{cell.metadata.number}"
        shown += nodes.container("", head(cell), source, classes=["cell"], ids=[name])
    return shown


def setup(app):
    """Register with Sphinx."""
    app.setup_extension("myst_nb")
    # override: until MyST-NB's node keeps the name of what it pastes
    app.add_role_to_domain("glue", "text", Number(), override=True)
    app.add_post_transform(ShowOrigins)
