"""A page's nodes as the Markdown and the code cells of a notebook for one framework.

Visible cells become code, with what the page shows of their outputs; all else becomes text that reads
without the site: numbers for references, names for citations, pictures for what hidden cells drew.
"""

import re
from base64 import b64encode
from pathlib import Path

from docutils import nodes
from nbformat import v4 as notebook
from sphinx import addnodes
from sphinx.util import logging
from sphinx_proof.nodes import proof_node

from .cells import is_cell
from .exercises import FOLDED
from .figures import PHONE
from .site import fold
from .twins import panel

# what a notebook has no use for, and what is its children, one after the other
NOTHING = nodes.Invisible | nodes.raw | nodes.meta | addnodes.toctree | addnodes.index
WHOLE = (
    nodes.compound | nodes.definition | nodes.definition_list | nodes.definition_list_item
)
WHOLE |= nodes.figure
SPECIAL = re.compile(r"([\\`*_$<|])")
BAR = re.compile(r"(?<!\\)\|")
logger = logging.getLogger(__name__)


class Folded(str):
    """The heading of what a reader unfolds."""


class Pieces:
    """Translates a page: `pieces.of(node)` gives Markdown, as text, and code cells, in order."""

    def __init__(self, builder, docname, framework):
        self.builder, self.docname, self.framework = builder, docname, framework
        self.depth = 0
        self.last = None  # the code cell to which a drawing belongs

    def of(self, node):
        """All pieces of a node's children."""
        for child in node.children:
            yield from self.block(child)

    def block(self, node):
        """The pieces of one node that stands by itself."""
        if isinstance(node, NOTHING):
            return []
        if isinstance(node, WHOLE):
            return self.of(node)
        match node:
            case nodes.section():
                return self.section(node)
            case nodes.title():
                heading = f"{'#' * self.depth} {self.line(node)}"
                folded = FOLDED.intersection(node.parent["classes"])
                return [Folded(heading) if folded else heading]
            case nodes.rubric():
                level = node.get("heading-level")
                line = self.line(node)
                return [f"{'#' * level} {line}" if level else f"**{line}**"]
            case nodes.paragraph():
                return [self.inlines(node)]
            case nodes.term():
                return [f"**{self.line(node)}**"]
            case nodes.caption():
                return [f"**{self.label(node.parent, 'figure')}.** {self.line(node)}"]
            case fold():  # the name of the library's version, then what is said of it
                *said, name = self.of(node)
                return [name, *said]
            case nodes.container():
                return self.container(node)
            case nodes.literal_block():
                if name := node.get("twin"):
                    return [f"The library has it as `{name}`."]
                language = (
                    "python" if node.get("testnodetype") else node.get("language", "")
                )
                return [f"```{language}\n{node.astext()}\n```"]
            case nodes.math_block():
                number = self.number(node, "displaymath")
                tag = f"\n\\tag{{{number}}}" if number else ""
                return [f"$$\n{node.astext().strip()}{tag}\n$$"]
            case nodes.bullet_list():
                return [self.items(node, ["-"] * len(node))]
            case nodes.enumerated_list():
                first = node.get("start", 1)
                return [self.items(node, [f"{first + i}." for i in range(len(node))])]
            case nodes.block_quote():
                return [quoted(self.text(node))]
            case proof_node():
                return [quoted(self.text(node[0]))]  # which begins with its name
            case nodes.transition():
                return ["---"]
            case nodes.Admonition() | nodes.topic():
                return self.box(node)
            case nodes.table():
                return self.table(node)
            case nodes.image():
                return self.image(node)
            case nodes.Inline() | nodes.Text():
                return [self.inline(node)]
        logger.warning("a notebook cannot hold the node %s", node.tagname, location=node)
        return []

    def text(self, node):
        """The children of a node that holds no cells, as one Markdown text."""
        return "\n\n".join(self.of(node))

    def line(self, node):
        """The children of a node as one line."""
        return " ".join(self.inlines(node).split())

    # What stands by itself.

    def section(self, node):
        """The pieces of a section, whose headings are one level deeper."""
        self.depth += 1
        yield from self.of(node)
        self.depth -= 1

    def container(self, node):
        """A cell, tabs, a note of the margin, or what it holds."""
        if is_cell(node):
            return self.cell(node)
        if node.get("design_component") == "tab-set":
            return self.tabs(node)
        return [quoted(self.text(node))] if "aside" in node["classes"] else self.of(node)

    def items(self, node, marks):
        """The items of a list, each behind its mark."""
        lines = []
        for mark, item in zip(marks, node.children, strict=True):
            indent = " " * (len(mark) + 1)
            text = self.text(item).replace("\n", "\n" + indent)
            lines.append(f"{mark} {text}".replace(f"\n{indent}\n", "\n\n"))
        return "\n".join(lines)

    def box(self, node):
        """A theorem, a note or a mistake: its kind, its number and its title, then what it says."""
        kind = node.get("realtype", "" if node.next_node(nodes.title) else node.tagname)
        words = [kind.title(), self.number(node, node.get("countertype"))]
        body = list(node.children)
        if isinstance(body[0], nodes.title):
            words.append(self.line(body.pop(0)))
        head = f"**{' '.join(filter(None, words))}.**"
        said = (piece for part in body for piece in self.block(part))
        return [quoted("\n\n".join([head, *said]))]

    def table(self, node):
        """A table of Markdown, below its caption."""
        title, group = node.next_node(nodes.title), node.next_node(nodes.tgroup)
        for math in group.findall(nodes.math):  # a bar would end the column
            text = math.astext().replace(r"\|", r"\Vert ").replace("|", r"\vert ")
            math[:] = [nodes.Text(text)]
        rows = [
            [BAR.sub(r"\|", self.line(entry)) for entry in row.findall(nodes.entry)]
            for row in group.findall(nodes.row)
        ]
        if group.next_node(nodes.thead) is None:
            rows.insert(0, [""] * len(rows[0]))
        rows.insert(1, ["---"] * len(rows[0]))
        table = "\n".join("| " + " | ".join(row) + " |" for row in rows)
        if title is None:
            return [table]
        return [f"**{self.label(node, 'table')}.** {self.line(title)}", table]

    def image(self, node):
        """A drawing: the output of the cell that drew it, or a picture if that cell is hidden."""
        path = Path(self.builder.srcdir) / node["uri"].lstrip("/")
        svg = PHONE.sub("", path.read_text(encoding="utf-8"))
        svg = svg[svg.index("<svg") :].replace("<svg", '<svg style="background: white"', 1)
        if "jupyter_execute" in node["uri"] and self.last is not None and not hidden(node):
            picture = notebook.new_output("display_data", {"image/svg+xml": svg})
            self.last.outputs.append(picture)
            return []
        alt = re.sub(r"[\[\]\s]+", " ", node.get("alt", ""))
        return [f"![{alt}](data:image/svg+xml;base64,{b64encode(svg.encode()).decode()})"]

    # Cells and tabs.

    def cell(self, node):
        """The code of a visible cell and what it printed, or the outputs alone of a hidden one."""
        others = {"torch", "jax"} - {self.framework}
        if is_cell(node, "remove-cell") or any(is_cell(node, other) for other in others):
            return
        parts = {name: part for part in node.children for name in part["classes"]}
        visible = "cell_input" in parts
        if visible:
            code = parts["cell_input"].next_node(nodes.literal_block).astext()
            self.last = notebook.new_code_cell(code)
            yield self.last
        for output in parts["cell_output"].children if "cell_output" in parts else ():
            if visible and isinstance(output, nodes.literal_block):
                text = output.astext().rstrip() + "\n"
                printed = notebook.new_output("stream", name="stdout", text=text)
                self.last.outputs.append(printed)
            else:
                yield from self.block(output)

    def tabs(self, node):
        """The cell of this framework; of the library's source, which is installed, its name."""
        cells = list(node.findall(is_cell))
        for cell in cells:
            yield from self.cell(cell)
        if not cells:
            for child in panel(node, self.framework):
                yield from self.block(child)

    # What stands in a line.

    def inlines(self, node):
        """The children of a node, in a line."""
        return "".join(map(self.inline, node.children))

    def inline(self, node):
        """One node in a line."""
        match node:
            case nodes.Text():
                return SPECIAL.sub(r"\\\1", str(node))
            case nodes.raw() | nodes.Invisible():
                return ""
            case nodes.math():
                return f"${node.astext()}$"
            case nodes.literal():
                text = node.astext()
                return f"`` {text} ``" if "`" in text else f"`{text}`"
            case nodes.emphasis():
                return f"*{self.inlines(node)}*"
            case nodes.strong():
                return f"**{self.inlines(node)}**"
            case nodes.reference():
                return self.link(node)
        return self.inlines(node)

    def link(self, node):
        """A link to another site, or to ours if its address is known; otherwise its text."""
        text, target = self.inlines(node), node.get("refuri", "")
        site = self.builder.config.html_baseurl
        if re.match(r"https?:", target) and not node.get("internal"):
            return f"[{text}]({target})"
        return f"[{text}]({site.rstrip('/')}/{target})" if site and target else text

    # Numbers.

    def number(self, node, counter):
        """The number of an equation, a figure, a table or a theorem, or nothing."""
        pages = self.builder.env.toc_fignumbers
        numbers = pages.get(self.docname, {}).get(counter, {})
        found = (numbers[name] for name in node["ids"] if name in numbers)
        return ".".join(map(str, next(found, ())))

    def label(self, node, kind):
        """What a caption begins with."""
        return self.builder.config.numfig_format[kind] % self.number(node, kind)


def hidden(node):
    """Whether a node is an output of a cell whose code is hidden."""
    while node is not None and not is_cell(node):
        node = node.parent
    return node is not None and not is_cell(node, visible=True)


def quoted(text):
    """Markdown that stands apart."""
    return "\n".join(f"> {line}".rstrip() for line in text.split("\n"))
