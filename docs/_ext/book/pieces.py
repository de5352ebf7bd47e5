"""A page's nodes as the Markdown and the code cells of a notebook for one framework.

Visible cells become code, with what the page shows of their outputs; all else becomes text that reads
without the site: numbers for references, names for citations, pictures for what hidden cells drew.
"""

import re
from base64 import b64encode
from pathlib import Path

import nbformat.v4 as notebook
from docutils import nodes
from .pages import PHONE
from sphinx.util import logging

logger = logging.getLogger(__name__)
SPECIAL = re.compile(r"([\\`*_$<|])")
BAR = re.compile(r"(?<!\\)\|")
FRAMEWORKS = {"torch", "jax"}


def tags(cell):
    """The tags of an executed cell."""
    return {name[4:] for name in cell["classes"] if name.startswith("tag_")}


def is_cell(node):
    """Whether a node is an executed cell."""
    return isinstance(node, nodes.container) and node.get("nb_element") == "cell_code"


def is_visible(cell):
    """Whether a reader sees the code of a cell."""
    return any("cell_input" in part["classes"] for part in cell.children)


class Folded(str):
    """The heading of what a reader unfolds."""


class Pieces:
    """Translates a page: `pieces.of(node)` gives Markdown, as text, and code cells, in order."""

    def __init__(self, builder, docname, framework):
        self.builder, self.env = builder, builder.env
        self.docname, self.framework, self.depth = docname, framework, 0
        self.last = None  # the code cell to which a drawing belongs

    def of(self, node):
        """All pieces of a node's children."""
        for child in node.children:
            yield from self.block(child)

    def block(self, node):
        """The pieces of one node that stands by itself."""
        for kind in type(node).__mro__:
            if method := getattr(self, f"_block_{kind.__name__}", None):
                return method(node)
        if isinstance(node, nodes.Inline | nodes.Text):
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

    def nothing(self, node):
        """What a notebook has no use for."""
        return []

    _block_Invisible = _block_raw = _block_toctree = _block_index = _block_highlightlang = (
        nothing
    )
    _block_tabular_col_spec = _block_meta = nothing

    def _block_section(self, node):
        self.depth += 1
        yield from self.of(node)
        self.depth -= 1

    def _block_title(self, node):
        heading = f"{'#' * self.depth} {self.line(node)}"
        return [Folded(heading) if "solution" in node.parent["classes"] else heading]

    def _block_rubric(self, node):
        level = node.get("heading-level")
        return [f"{'#' * level} {self.line(node)}" if level else f"**{self.line(node)}**"]

    def _block_paragraph(self, node):
        return [self.inlines(node)]

    _block_line = _block_paragraph

    def _block_term(self, node):
        return [f"**{self.line(node)}**"]

    def _block_compound(self, node):
        return self.of(node)

    _block_definition = _block_definition_list = _block_definition_list_item = (
        _block_compound
    )
    _block_line_block = _block_compound

    def _block_container(self, node):
        if is_cell(node):
            return self.cell(node)
        if node.get("design_component") == "tab-set":
            return self.tabs(node)
        if "twin" in node:  # its name, then what is said of it
            *said, name = self.of(node)
            return [name, *said]
        return self.quote(node) if "aside" in node["classes"] else self.of(node)

    def _block_transition(self, node):
        return ["---"]

    def _block_literal_block(self, node):
        if name := node.get("twin"):
            return [f"The library has it as `{name}`."]
        language = "python" if node.get("testnodetype") else node.get("language", "")
        return [f"```{language}\n{node.astext()}\n```"]

    _block_doctest_block = _block_literal_block

    def _block_math_block(self, node):
        number = self.number(node, "displaymath")
        tag = f"\n\\tag{{{number}}}" if number else ""
        return [f"$$\n{node.astext().strip()}{tag}\n$$"]

    def _block_bullet_list(self, node):
        return [self.items(node, ["-"] * len(node))]

    def _block_enumerated_list(self, node):
        first = node.get("start", 1)
        return [self.items(node, [f"{first + i}." for i in range(len(node))])]

    def items(self, node, marks):
        """The items of a list, each behind its mark."""
        lines = []
        for mark, item in zip(marks, node.children, strict=True):
            indent = " " * (len(mark) + 1)
            text = self.text(item).replace("\n", "\n" + indent)
            lines.append(f"{mark} {text}".replace(f"\n{indent}\n", "\n\n"))
        return "\n".join(lines)

    def _block_block_quote(self, node):
        return self.quote(node)

    def _block_Admonition(self, node):
        kind = node.get("realtype", "" if node.next_node(nodes.title) else node.tagname)
        words = [kind.title(), self.number(node, node.get("countertype"))]
        body = list(node.children)
        if isinstance(body[0], nodes.title):
            words.append(self.line(body.pop(0)))
        head = f"**{' '.join(filter(None, words))}.**"
        return [
            quoted(
                "\n\n".join([head, *(piece for part in body for piece in self.block(part))])
            )
        ]

    _block_topic = _block_sidebar = _block_Admonition

    def _block_proof_node(self, node):
        return self.quote(node[0])  # which begins with its name

    def quote(self, node):
        """What stands apart from the text."""
        return [quoted(self.text(node))]

    def _block_table(self, node):
        title, group = node.next_node(nodes.title), node.next_node(nodes.tgroup)
        for math in group.findall(nodes.math):  # a bar would end the column
            math[:] = [
                nodes.Text(math.astext().replace(r"\|", r"\Vert ").replace("|", r"\vert "))
            ]
        rows = [
            [BAR.sub(r"\|", self.line(entry)) for entry in row.findall(nodes.entry)]
            for row in group.findall(nodes.row)
        ]
        if next(group.findall(nodes.thead), None) is None:
            rows.insert(0, [""] * len(rows[0]))
        rows.insert(1, ["---"] * len(rows[0]))
        table = "\n".join("| " + " | ".join(row) + " |" for row in rows)
        if title is None:
            return [table]
        return [f"**{self.label(node, 'table')}.** {self.line(title)}", table]

    def _block_figure(self, node):
        yield from self.of(node)

    def _block_caption(self, node):
        number = self.label(node.parent, "figure")
        return [f"**{number}.** {self.line(node)}"]

    def _block_legend(self, node):
        return self.of(node)

    def _block_image(self, node):
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
        if "remove-cell" in tags(node) or tags(node) & (FRAMEWORKS - {self.framework}):
            return
        parts = {name: part for part in node.children for name in part["classes"]}
        if is_visible(node):
            code = parts["cell_input"].next_node(nodes.literal_block).astext()
            self.last = notebook.new_code_cell(code)
            yield self.last
        for output in parts["cell_output"].children if "cell_output" in parts else ():
            if is_visible(node) and isinstance(output, nodes.literal_block):
                text = output.astext().rstrip() + "\n"
                self.last.outputs.append(
                    notebook.new_output("stream", name="stdout", text=text)
                )
            else:
                yield from self.block(output)

    def tabs(self, node):
        """The cell of this framework; of the library's source, which is installed, its name."""
        cells = list(node.findall(is_cell))
        for cell in cells:
            yield from self.cell(cell)
        if not cells:
            panels = {
                panel.next_node(nodes.rubric).get("sync_id"): panel[1] for panel in node
            }
            yield from self.of(panels.get(self.framework, node[0][1]))

    # What stands in a line.

    def inlines(self, node):
        """The children of a node, in a line."""
        return "".join(map(self.inline, node.children))

    def inline(self, node):
        """One node in a line."""
        for kind in type(node).__mro__:
            if method := getattr(self, f"_inline_{kind.__name__}", None):
                return method(node)
        return self.inlines(node)

    def _inline_Text(self, node):
        return SPECIAL.sub(r"\\\1", str(node))

    def _inline_emphasis(self, node):
        return f"*{self.inlines(node)}*"

    def _inline_strong(self, node):
        return f"**{self.inlines(node)}**"

    def _inline_literal(self, node):
        text = node.astext()
        return f"`` {text} ``" if "`" in text else f"`{text}`"

    def _inline_math(self, node):
        return f"${node.astext()}$"

    def _inline_reference(self, node):
        text, target = self.inlines(node), node.get("refuri", "")
        site = self.builder.config.html_baseurl
        inside = node.get("internal") or not re.match(r"https?:", target)
        if inside and not (site and target):
            return text
        return f"[{text}]({site.rstrip('/') + '/' + target if inside else target})"

    def _inline_raw(self, node):
        return ""

    _inline_Invisible = _inline_raw

    # Numbers.

    def number(self, node, counter):
        """The number of a figure, a table or a theorem, or nothing."""
        numbers = self.env.toc_fignumbers.get(self.docname, {}).get(counter, {})
        found = (numbers[name] for name in node["ids"] if name in numbers)
        return ".".join(map(str, next(found, ())))

    def label(self, node, kind):
        """What a caption begins with."""
        return self.builder.config.numfig_format[kind] % self.number(node, kind)


def hidden(node):
    """Whether a node is an output of a cell whose code is hidden."""
    while node is not None and not is_cell(node):
        node = node.parent
    return node is not None and not is_visible(node)


def quoted(text):
    """Markdown that stands apart."""
    return "\n".join(f"> {line}".rstrip() for line in text.split("\n"))
