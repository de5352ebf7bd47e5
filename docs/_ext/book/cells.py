"""Every number in a sentence leads to the cell that computed it.

The cells of a page are numbered in the order in which the build runs them. On the web a cell shows its
number, a pasted number names the cell that computed it and links to it, and the cells that the text
does not show stand folded at the end of the page.
"""

from html import escape
from typing import NamedTuple

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


class Cell(NamedTuple):
    """A cell that the build ran: its number on its page, its code, its tags, and what it glues."""

    number: int
    source: str
    tags: list
    glued: list

    @property
    def hidden(self):
        """Whether the text does not show the code."""
        return bool(HIDDEN & {*self.tags})


def cells(env, docname):
    """The cells of a page by their place among all cells, as the build noted them when it ran the page."""
    return env.metadata[docname].get("cells", {})


def head(cell):
    """The bar of a cell: what it is, and its number as a link to itself."""
    name = next((NAMES[tag] for tag in NAMES if tag in cell.tags), "")
    if cell.hidden and cell.glued:
        name = "Computes " + ", ".join(f"<code>{escape(n)}</code>" for n in cell.glued)
    label = f'aria-label="Link to cell {cell.number}"'
    link = f'<a href="#cell-{cell.number}" {label}>cell {cell.number}</a>'
    return html(f'<p class="cell-head"><span>{name}</span> {link}</p>')


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
            if not cell.hidden:
                node["ids"].append(f"cell-{cell.number}")
                if "compare" in cell.tags:  # what it prints is enough
                    node[0] = fold("", node[0], classes=["check"], summary=COMPARED)
                node.insert(0, head(cell))
        for mark in list(self.document.findall(nodes.inline)):
            if "glued" in mark:
                self.mark(mark)
        hidden = [cell for cell in here.values() if cell.hidden]
        if hidden:
            self.document.next_node(nodes.section).append(behind(hidden))

    def mark(self, mark):
        """Link a pasted number to its cell, if it is not part of a link."""
        if isinstance(mark.parent.parent, nodes.reference):
            return
        page, name = mark["page"], mark["glued"]
        made = (c for c in cells(self.env, page).values() if name in c.glued)
        number = next((cell.number for cell in made), None)
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
        name = f"cell-{cell.number}"
        shown += nodes.container("", head(cell), source, classes=["cell"], ids=[name])
    return shown


def setup(app):
    """Register with Sphinx."""
    app.setup_extension("myst_nb")
    # override: until MyST-NB's node keeps the name of what it pastes
    app.add_role_to_domain("glue", "text", Number(), override=True)
    app.add_post_transform(ShowOrigins)
