"""The pages as a book on paper: parts, one framework, and code that stays with what it printed.

What this module takes out or adds stands in print alone. `paper.sty` has the look.
"""

import re

from docutils import nodes
from sphinx import addnodes
from sphinx.builders.latex import LaTeXBuilder
from sphinx.transforms.post_transforms import SphinxPostTransform
from sphinx.util.texescape import escape
from sphinx_proof.nodes import proof_node
from .twins import LABELS

APART = "api/"  # the reference of the library is a document of its own
LEFT_OUT = ("404", "slides/", "sources")
TOGETHER = 20  # a cell of fewer lines, with what it printed, is not parted
BEGINNING = 7  # lines that stand before the first break of a longer one
LONG = 12  # rows of a table that may run over pages
WIDE = 8  # columns of a table that needs small type
BREAKS = re.compile(r"(?<=[=(,_.])")  # where a line of code in a table may end


class BookBuilder(LaTeXBuilder):
    """Sphinx's builder, which also remembers whether it makes the book or the library's reference."""

    def assemble_doctree(self, indexfile, toctree_only, appendices):
        """Of the entries of `latex_documents`, the one with `toctree_only` is the reference."""
        self.reference = toctree_only
        return super().assemble_doctree(indexfile, toctree_only, appendices)


class Parts(SphinxPostTransform):
    """Sort the chapters into the two documents, and open each part of the book with a page."""

    default_priority = 1
    builders = ("latex",)

    def run(self, **kwargs):
        """Take out what the document does not hold, and put the parts in front of their chapters."""
        chapters = {
            file["docname"]: file for file in self.document.findall(addnodes.start_of_file)
        }
        for page in list(chapters):
            if page.startswith(LEFT_OUT) or (
                page.startswith(APART) != bool(self.app.builder.reference)
            ):
                file = chapters.pop(page)
                file.parent.remove(file)
                self.app.builder.docnames.discard(page)  # a reference to it is no link
        root = self.env.get_doctree(self.config.root_doc)
        for toctree in root.findall(addnodes.toctree):
            held = [page for page in toctree["includefiles"] if page in chapters]
            if held and toctree.get("caption") and not self.app.builder.reference:
                first = chapters[held[0]]
                part = part_page(toctree["caption"], [(p, chapters[p]) for p in held])
                first.parent.insert(first.parent.index(first), part)


def part_page(name, chapters):
    """The page before a part's chapters: its name, theirs, and the question that each asks."""
    lines = []
    for page, file in chapters:
        title = file.next_node(nodes.title)
        first = title.next_node(descend=False, siblings=True)
        asks = isinstance(first, nodes.paragraph) and [type(n) for n in first] == [
            nodes.emphasis
        ]
        question = first.astext() if asks else ""
        lines.append(
            rf"\partchapter{{\detokenize{{{page}::doc}}}}{{{escape(title.astext(), 'xelatex')}}}"
            f"{{{escape(question, 'xelatex')}}}"
        )
    text = "\n".join([rf"\partpage{{{escape(name, 'xelatex')}}}{{", *lines, "}"])
    return nodes.raw("", text, format="latex")


class OneFramework(SphinxPostTransform):
    """Keep one tab of each set of tabs: on paper nobody can choose."""

    default_priority = 150  # before sphinx-design makes tabs
    builders = ("latex", "epub")

    def run(self, **kwargs):
        """Put the tab of the edition, or else the first one, in the place of its set."""
        edition = self.config.paper_framework
        for tabs in list(self.document.findall(has_class("sd-tab-set"))):
            if tabs.parent is None:
                continue
            panels = {}
            for item in tabs.children:
                label, panel = item.children
                panels[label.get("sync_id")] = panel.children
            tabs.replace_self(panels.get(edition) or next(iter(panels.values())))


class ShortLibrary(SphinxPostTransform):
    """Name the library's version where the text says what it adds: the text from scratch is shown."""

    default_priority = 160
    builders = ("latex", "epub")

    def run(self, **kwargs):
        """Replace the source by a line, or the box by the source if nothing is said about it."""
        for box in list(self.document.findall(has_class("library"))):
            said = [child for child in box.children if isinstance(child, nodes.paragraph)]
            if not said or "twin" not in box:
                box.replace_self(box.children)
                continue
            full = box.next_node(nodes.literal_block)["twin"]
            where = [nodes.Text("In the library this is "), nodes.literal(full, full)]
            where.append(nodes.Text(". "))
            said[0][:0] = where
            box.replace_self(said)


class ForScreens(SphinxPostTransform):
    """Leave out what only a screen needs: nodes of class `screen`."""

    default_priority = 2
    builders = ("latex", "epub")

    def run(self, **kwargs):
        """Remove them, before anything in them is resolved."""
        for node in list(self.document.findall(nodes.Element)):
            if node.parent and "screen" in node.attributes.get("classes", ()):
                node.parent.remove(node)


class Listings(SphinxPostTransform):
    """Keep code together with what it printed, as far as that leaves no hole in the page."""

    default_priority = 280
    builders = ("latex",)

    def run(self, **kwargs):
        """Ask for room in front of each cell."""
        for cell in list(self.document.findall(has_class("cell"))):
            blocks = list(cell.findall(nodes.literal_block))
            if blocks:
                lines = sum(block.astext().count("\n") + 3 for block in blocks)
                room = lines if lines <= TOGETHER else BEGINNING
                top = under_heading(cell)
                room += 4 * (top is not cell)
                request = nodes.raw("", rf"\roomfor{{{room}}}", format="latex")
                top.parent.insert(top.parent.index(top), request)


def under_heading(node):
    """The section that begins with this node, or the node: a heading does not stand alone."""
    parent = node.parent
    first = isinstance(parent, nodes.section) and isinstance(
        parent[parent.index(node) - 1], nodes.title
    )
    return under_heading(parent) if first else node


class Tables(SphinxPostTransform):
    """Let long tables run over pages, and turn the headings of those with many columns."""

    default_priority = 290
    builders = ("latex",)

    def run(self, **kwargs):
        """Mark the tables for Sphinx's writer."""
        for table in list(self.document.findall(nodes.table)):
            if len(list(table.findall(nodes.row))) > LONG:
                table["classes"].append("longtable")
            if "small" in table["classes"]:
                self.make_small(table)
            columns = len(list(table.findall(nodes.colspec)))
            if columns < WIDE:
                continue
            for paragraph in table.next_node(nodes.thead).findall(nodes.paragraph):
                paragraph.insert(0, nodes.raw("", r"\rotatebox{90}{", format="latex"))
                paragraph.append(nodes.raw("", "}", format="latex"))
            table.replace_self(
                [
                    nodes.raw("", r"\begin{widetable}", format="latex"),
                    addnodes.tabular_col_spec(spec="l" * columns),
                    table,
                    nodes.raw("", r"\end{widetable}", format="latex"),
                ]
            )

    def make_small(self, table):
        """Set a table small, and let the code in it break where Python lets it."""
        for code in list(table.findall(nodes.literal)):
            pieces = BREAKS.split(code.astext())
            code[:] = [
                node
                for piece in pieces
                for node in (
                    nodes.Text(piece),
                    nodes.raw("", r"\allowbreak{}", format="latex"),
                )
            ]
        table.replace_self(
            [
                nodes.raw("", r"\begin{smalltable}", format="latex"),
                table,
                nodes.raw("", r"\end{smalltable}", format="latex"),
            ]
        )


class Cards(SphinxPostTransform):
    """Set the cards of the atlas with their pictures beside them, where no picture floats away."""

    default_priority = 275
    builders = ("latex",)

    def run(self, **kwargs):
        """Put each picture, without the figure around it, and the text into boxes."""
        for file in list(self.document.findall(addnodes.start_of_file)):
            for card in list(file.findall(has_class("scheme"))):
                self.box(card, file["docname"])

    def box(self, card, page):
        """Sphinx makes no aim for links of a heading outside of sections, so that is put in as well."""
        figure, *text = card.children
        if not isinstance(figure, nodes.figure):
            return  # a file in a file: this card is done
        picture = figure.next_node(nodes.image)
        picture["width"] = "34mm"
        names = (f"{page}:{name}" for name in card.next_node(nodes.rubric)["ids"])
        labels = "".join(rf"\label{{\detokenize{{{name}}}}}" for name in names)
        aim = nodes.raw("", r"\phantomsection" + labels, format="latex")
        boxes = {"picture": [picture], "text": [aim, *text], "end": []}
        card[:] = [
            node
            for name, parts in boxes.items()
            for node in (nodes.raw("", rf"\card{name}{{}}", format="latex"), *parts)
        ]


class PlainProofs(SphinxPostTransform):
    """Print proofs as text: sphinx-proof's box has no title in LaTeX, and so an empty bar."""

    default_priority = 270
    builders = ("latex",)

    def run(self, **kwargs):
        """Put the paragraphs of each proof in the place of its box, and an end mark."""
        for proof in list(self.document.findall(proof_node)):
            proof.replace_self(
                [*proof.children[0].children, nodes.raw("", r"\proofends", format="latex")]
            )


def has_class(name):
    """A condition for `findall`: containers of this class."""
    return lambda node: isinstance(node, nodes.container) and name in node["classes"]


def check_edition(app, config):
    """Refuse an edition for a framework that the pages do not have."""
    if config.paper_framework not in LABELS:
        raise ValueError(
            f"paper_framework must be one of {', '.join(LABELS)}, got {config.paper_framework!r}"
        )


def setup(app):
    """Register with Sphinx."""
    app.add_config_value("paper_framework", "torch", "", types=[str])
    app.connect("config-inited", check_edition)
    app.add_builder(BookBuilder, override=True)
    for transform in (
        Parts,
        ForScreens,
        OneFramework,
        ShortLibrary,
        Listings,
        Tables,
        Cards,
        PlainProofs,
    ):
        app.add_post_transform(transform)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
