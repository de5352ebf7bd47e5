"""Every number in a sentence leads to the cell that computed it.

The cells of a page are numbered in the order in which the build runs them. On the web a cell shows its
number, a pasted number names the cell that it came from and links to it, and the cells that the text
does not show stand folded at the end of the page.
"""

import json
from dataclasses import dataclass
from html import escape
from pathlib import Path

from docutils import nodes
from myst_nb.ext import glue
from myst_nb.ext.glue.roles import PasteTextRole
from sphinx.transforms.post_transforms import SphinxPostTransform

NAMES = {"scratch": "From scratch", "compare": "Compared with the library"}
HIDDEN = {"remove-cell", "remove_cell", "remove-input", "remove_input"}
extract = glue.extract_glue_data_cell


@dataclass(frozen=True)
class Cell:
    """A code cell of a page: its number there, its place in the notebook, and what it computes."""

    number: int
    index: int
    code: str
    tags: frozenset
    glued: tuple

    @property
    def id(self):
        """The anchor."""
        return f"cell-{self.number}"

    @property
    def head(self):
        """The bar of the cell: what it is, and its number as a link to itself."""
        name = next((NAMES[tag] for tag in NAMES if tag in self.tags), "")
        if HIDDEN & self.tags and self.glued:
            name = "Computes " + ", ".join(f"<code>{escape(n)}</code>" for n in self.glued)
        html = (
            f'<p class="cell-head"><span>{name}</span> '
            f'<a href="#{self.id}" aria-label="Link to cell {self.number}">'
            f"cell {self.number}</a></p>"
        )
        return nodes.raw("", html, format="html")


def remember(cell):
    """Extract what a cell glues, as MyST-NB does, and note the names with the cell.

    What it printed is one text from here on: on a busy machine the kernel sends it in pieces, and
    MyST-NB would end each piece with a line break.
    """
    found = extract(cell)
    cell.outputs = whole(cell.get("outputs", []))
    cell.metadata["glued"] = [name for name, _ in found]
    return found


def whole(outputs):
    """The outputs of a cell, each stream in one piece at its first place."""
    kept, streams = [], {}
    for output in outputs:
        if output.output_type != "stream":
            kept.append(output)
        elif output.name in streams:
            streams[output.name].text += output.text
        else:
            kept.append(streams.setdefault(output.name, output))
    return kept


def cells(env, docname):
    """The code cells of a page, from the notebook that MyST-NB wrote when it ran the page."""
    path = Path(env.mystnb_config.output_folder, f"{docname}.ipynb")
    if not path.is_file():
        return []
    notebook = json.loads(path.read_text(encoding="utf-8"))
    code = [(i, c) for i, c in enumerate(notebook["cells"]) if c["cell_type"] == "code"]
    return [
        Cell(
            number,
            index,
            "".join(cell["source"]),
            frozenset(cell["metadata"].get("tags", ())),
            tuple(cell["metadata"].get("glued", ())),
        )
        for number, (index, cell) in enumerate(code, start=1)
    ]


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
    """Number the cells, mark the pasted numbers, and fold the hidden cells at the end."""

    default_priority = 280
    builders = ("html", "dirhtml")

    def run(self, **kwargs):
        """Change the page for the web alone."""
        here = cells(self.env, self.env.docname)
        by_index = {cell.index: cell for cell in here}
        for node in self.document.findall(nodes.container):
            if node.get("nb_element") != "cell_code":
                continue
            cell = by_index[node["cell_index"]]
            if not HIDDEN & cell.tags:
                node["ids"].append(cell.id)
                node.insert(0, cell.head)
        for mark in list(
            self.document.findall(lambda n: "glued" in getattr(n, "attributes", ()))
        ):
            self.mark(mark)
        hidden = [cell for cell in here if HIDDEN & cell.tags]
        if hidden:
            next(self.document.findall(nodes.section)).extend(behind(hidden))

    def mark(self, mark):
        """Link a pasted number to its cell."""
        page, name = mark["page"], mark["glued"]
        cell = next((c for c in cells(self.env, page) if name in c.glued), None)
        if cell is None:
            return
        there, of_page = "", ""
        if page != self.env.docname:
            there = self.app.builder.get_relative_uri(self.env.docname, page)
            of_page = f" of {self.env.titles[page].astext()}"
        origin = escape(f"computed by cell {cell.number}{of_page}: {name}")
        html = (
            f'<a class="computed" href="{there}#{cell.id}" aria-description="{origin}">'
            f"{escape(mark.astext())}</a>"
        )
        mark.replace_self(nodes.raw("", html, format="html"))


def behind(hidden):
    """Yield the section that shows the hidden cells."""
    note = "The text does not show these cells; the build ran them with the others, in this order."
    yield nodes.raw(
        "", '<details class="behind"><summary>Behind this page</summary>', format="html"
    )
    yield nodes.paragraph(note, note)
    for cell in hidden:
        code = nodes.literal_block(cell.code, cell.code, language="python")
        source = nodes.container("", code, classes=["cell_input"])
        yield nodes.container("", cell.head, source, classes=["cell"], ids=[cell.id])
    yield nodes.raw("", "</details>", format="html")


def setup(app):
    """Register with Sphinx."""
    app.setup_extension("myst_nb")
    glue.extract_glue_data_cell = remember  # MyST-NB forgets which cell glued what
    app.add_role_to_domain("glue", "text", Number(), override=True)
    app.add_post_transform(ShowOrigins)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
