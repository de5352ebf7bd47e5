"""The pages as a book on paper: parts, one framework, and code that stays with what it printed.

What this module takes out or adds stands in print only; the EPUB shares a part of it. `paper.sty` has
the look.
"""

from docutils import nodes
from sphinx import addnodes
from sphinx.transforms.post_transforms import SphinxPostTransform
from sphinx.util import docname_join
from sphinx.util.texescape import escape
from sphinx_proof.nodes import proof_node

from .chapters import APPENDICES, ENGINES
from .place import question
from .twins import panel

LEFT_OUT = (  # what is looked up, on the site: so it stands at the end of its part
    *("404", "api/", "slides/", "models/", "questions", *ENGINES),
    *(f"reference/{name}" for name in ("atlas", "models", "measurements", "sources")),
)
TOGETHER = 20  # a cell of fewer lines, with what it printed, is not parted
BEGINNING = 7  # lines that stand before the first break of a longer one
LONG = 12  # rows of a table that may run over pages


class Select(SphinxPostTransform):
    """Take out what the document does not hold, before anything in it is resolved."""

    default_priority = 1
    builders = ("latex", "epub")

    def run(self, **kwargs):
        """Remove nodes of class `screen`, sort the chapters, and open each part with a page."""
        for node in list(self.document.findall(nodes.Element)):
            if node.parent and "screen" in node.attributes.get("classes", ()):
                node.parent.remove(node)
        if self.app.builder.name == "latex":
            self.sort()

    def sort(self):
        """Leave the chapters of this document, with a page in front of each part."""
        chapters = {
            file["docname"]: file for file in self.document.findall(addnodes.start_of_file)
        }
        left_out = set()
        for page in list(chapters):
            if page.startswith(LEFT_OUT):
                file = chapters.pop(page)
                file.parent.remove(file)
                self.app.builder.docnames.discard(page)  # a reference to it is no link
                left_out.add(page)
        labels = self.env.domains.standard_domain.labels
        for link in self.document.findall(addnodes.pending_xref):
            page = docname_join(link.get("refdoc", ""), link["reftarget"])
            title = self.env.titles[page].astext() if page in self.env.titles else ""
            if link["reftype"] == "ref":
                page, _, title = labels.get(link["reftarget"], ("", "", ""))
            if page in left_out and not link["refexplicit"]:
                link.children[0][:] = [nodes.Text(title)]
        root = self.env.get_doctree(self.config.root_doc)
        for toctree in root.findall(addnodes.toctree):
            held = [page for page in toctree["includefiles"] if page in chapters]
            if held and toctree.get("caption"):
                first = chapters[held[0]]
                part = part_page(toctree["caption"], [(p, chapters[p]) for p in held])
                first.parent.insert(first.parent.index(first), part)


def part_page(name, chapters):
    """The page before a part's chapters: its name, theirs, and the question that each asks."""
    lines = []
    for page, file in chapters:
        title = escape(file.next_node(nodes.title).astext(), "xelatex")
        asks = escape(question(file), "xelatex")
        label = rf"\detokenize{{{page}::doc}}"
        lines.append(rf"\partchapter{{{label}}}{{{title}}}{{{asks}}}")
    lines = [rf"\partpage{{{escape(name, 'xelatex')}}}{{", *lines, "}"]
    if name == APPENDICES:
        lines.insert(0, r"\appendix")
    return latex("\n".join(lines))


class OneFramework(SphinxPostTransform):
    """Show one framework, and name the library's version: the text from scratch is shown."""

    default_priority = 150  # before sphinx-design makes tabs
    builders = ("latex", "epub")

    def run(self, **kwargs):
        """Put one tab in the place of each set, and a line in the place of the library's source."""
        edition = self.config.paper_framework
        for tabs in list(self.document.findall(has_class("sd-tab-set"))):
            if tabs.parent is None:
                continue
            tabs.replace_self(panel(tabs, edition))
        for box in list(self.document.findall(has_class("library"))):
            said = [child for child in box.children if isinstance(child, nodes.paragraph)]
            if said:
                name = box.next_node(nodes.literal_block)["twin"]
                start = nodes.Text("In the library this is ")
                said[0][:0] = [start, nodes.literal(name, name), nodes.Text(". ")]
            box.replace_self(said or box.children)


class Typeset(SphinxPostTransform):
    """Tell LaTeX what its own rules do not know of listings, tables and proofs."""

    default_priority = 280
    builders = ("latex",)

    def run(self, **kwargs):
        """Set each kind of piece."""
        # sphinx-proof's box has no title in LaTeX, and so an empty bar
        for proof in list(self.document.findall(proof_node)):
            proof.replace_self([*proof.children[0].children, latex(r"\proofends")])
        for cell in list(self.document.findall(has_class("cell"))):
            ask_for_room(cell)
        for table in self.document.findall(nodes.table):
            if len(list(table.findall(nodes.row))) > LONG:
                table["classes"].append("longtable")


def ask_for_room(cell):
    """Keep code together with what it printed, as far as that leaves no hole in the page."""
    blocks = list(cell.findall(nodes.literal_block))
    if blocks:
        lines = sum(block.astext().count("\n") + 3 for block in blocks)
        top = under_heading(cell)
        room = (lines if lines <= TOGETHER else BEGINNING) + 4 * (top is not cell)
        place = top.parent.index(top)
        while place and isinstance(top.parent[place - 1], nodes.target):
            place -= 1  # or Sphinx would write the name of the place twice
        top.parent.insert(place, latex(rf"\roomfor{{{room}}}"))


def under_heading(node):
    """The section that begins with this node, or the node: a heading does not stand by itself."""
    parent = node.parent
    first = isinstance(parent, nodes.section) and isinstance(
        parent[parent.index(node) - 1], nodes.title
    )
    return under_heading(parent) if first else node


def latex(text):
    """A piece of LaTeX."""
    return nodes.raw("", text, format="latex")


def has_class(name):
    """A condition for `findall`: containers of this class."""
    return lambda node: isinstance(node, nodes.container) and name in node["classes"]


def setup(app):
    """Register with Sphinx."""
    app.add_config_value("paper_framework", "torch", "", types=[str])
    for transform in (Select, OneFramework, Typeset):
        app.add_post_transform(transform)
