"""Slides take what they show from the pages: nothing is copied by hand.

`{from-page} label` puts a piece of a page on a slide: an equation, a figure, a table or a theorem by
its label, what a cell printed by a tag `out-...` of the cell, or the cell itself by a tag `code-...`;
an unknown label fails the build.
With `:class: aside` the piece stands beside the text.
"""

import re
from typing import ClassVar

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.addnodes import pending_xref
from sphinx.transforms.post_transforms import SphinxPostTransform
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective
from sphinx_proof.nodes import NODE_TYPES
from .twins import outputs, take_figures

THEOREMS = tuple(NODE_TYPES.values())
STOP = re.compile(r"[,.]\s*(\\end\{aligned\})?\s*$")  # a slide is no part of a sentence
logger = logging.getLogger(__name__)


class FromPage(SphinxDirective):
    """Keep a box for the piece with this label."""

    required_arguments = 1
    option_spec: ClassVar = {"class": directives.class_option}

    def run(self):
        """Return the box, which stays empty until all pages are read."""
        classes = self.options.get("class", [])
        box = nodes.container("", piece=self.arguments[0], classes=classes)
        self.set_source_info(box)
        return [box]


class FillBoxes(SphinxPostTransform):
    """Fill the boxes before anything in them is resolved."""

    default_priority = 1

    def run(self, **kwargs):
        """Put copies into the boxes, and note which links lead to the originals."""
        waiting = boxes(self.document)
        given = pieces(self.env) if waiting else {}
        for box in waiting:
            label = box["piece"]
            if label not in given:
                title = slide(box).next_node(nodes.title).astext()
                logger.warning("slide %r: no page has %r", title, label, location=box)
                continue
            page, node = given[label]
            kind, role, content = taken(node, label)
            box["classes"].append(kind)
            box["links"] = {f"/{page}": "std:doc"} | ({label: role} if role else {})
            box += content
            for node in list(box.findall(nodes.Element)):
                self.settle(node)

    def settle(self, node):
        """Take its ids and numbers from a copy, and let its links start on the slide."""
        node["ids"] = []
        if isinstance(node, nodes.math_block):
            node["label"] = node["number"] = None
        elif isinstance(node, pending_xref):
            node["refdoc"] = self.env.docname
        elif isinstance(node, nodes.target):
            node.parent.remove(node)


def boxes(document):
    """The boxes of a document."""
    return [box for box in document.findall(nodes.container) if "piece" in box]


def slide(node):
    """The slide on which a node stands."""
    return node if isinstance(node, nodes.section) else slide(node.parent)


def pieces(env):
    """What the pages have to give, by label: the page and the node."""
    found = {}
    for page in sorted(env.found_docs - {env.docname}):
        for node in env.get_doctree(page).findall(nodes.Element):
            labels = []
            if isinstance(node, (nodes.math_block, nodes.figure, nodes.table, *THEOREMS)):
                labels = [*node["names"], node.get("label")]
            elif node.get("nb_element") == "cell_code":
                labels = [name.removeprefix("tag_") for name in node["classes"]]
            found |= dict.fromkeys(labels, (page, node))
    return found


def taken(node, label):
    """The kind of a piece, the role that refers to it, and a copy of what a slide shows of it."""
    node = node.deepcopy()
    if isinstance(node, nodes.math_block):
        node[:] = [nodes.Text(STOP.sub(r"\1", node.astext()))]
        return "equation", "math:eq", [node]
    if isinstance(node, nodes.figure):
        return "figure", "std:numref", [node.children[0]]
    if isinstance(node, THEOREMS):
        title, section = node.children
        name = nodes.strong("", node["realtype"].title() + title.astext())
        return "theorem", "prf:ref", [nodes.paragraph("", "", name), *section.children]
    if isinstance(node, nodes.table):
        return "table", None, [node]
    if label.startswith("code-"):
        return "code", None, list(node.findall(nodes.literal_block))[:1]
    take_figures(node)
    return "output", None, [child for output in outputs(node) for child in output.children]


def setup(app):
    """Register with Sphinx."""
    app.add_directive("from-page", FromPage)
    app.add_post_transform(FillBoxes)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
