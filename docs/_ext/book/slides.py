"""Slides, which take what they show from the pages: nothing is copied by hand.

`{from-page} label` puts a piece of a page on a slide: an equation, a figure, a table or a theorem by
its label, what a cell printed by a tag `out-...` of the cell, or the cell itself by a tag `code-...`;
an unknown label fails the build. With `:class: aside` the piece stands beside the text.
The deck shares the files of the site.
"""

import re
from pathlib import Path
from typing import ClassVar

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.addnodes import pending_xref
from sphinx.transforms.post_transforms import SphinxPostTransform
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective
from sphinx.util.fileutil import copy_asset
from sphinx.writers.html5 import HTML5Translator
from sphinx_proof.nodes import NODE_TYPES
from sphinx_revealjs._ext.notes import revealjs_notes
from sphinx_revealjs.nodes import revealjs_fragments
from sphinx_revealjs.utils import get_revealjs_path

from .cells import is_cell
from .site import html
from .twins import outputs, take_figures

THEOREMS = tuple(NODE_TYPES.values())
LABELLED = (nodes.math_block, nodes.figure, nodes.table, *THEOREMS)
STOP = re.compile(r"[,.]\s*(\\end\{aligned\})?\s*$")  # a slide is no part of a sentence
ENGINE = ["LICENSE", "dist/reveal.css", "dist/reveal.js", "plugin/notes/notes.js"]
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
        boxes = [box for box in self.document.findall(nodes.container) if "piece" in box]
        given = pieces(self.env) if boxes else {}
        for box in boxes:
            label = box["piece"]
            if label not in given:
                logger.warning("no page has %r", label, location=box)
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


def depth(section):
    """How many sections a section is in, itself included."""
    return 1 + depth(section.parent) if isinstance(section, nodes.section) else 0


def pieces(env):
    """What the pages have to give, by label: the page and the node."""
    found = {}
    for page in sorted(env.found_docs - {env.docname}):
        for node in env.get_doctree(page).findall(nodes.Element):
            labels = []
            if isinstance(node, LABELLED):
                labels = [*node["names"], node.get("label")]
            elif is_cell(node):
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


class LayOut(SphinxPostTransform):
    """Give each slide a title, a body of words and what stands beside them, links, and notes."""

    default_priority = 2
    builders = ("revealjs",)

    def run(self, **kwargs):
        """Sort what a slide holds; the links lead to the book and to where the pieces come from."""
        for slide in list(self.document.findall(nodes.section)):
            title, *rest = slide.children
            after = [n for n in rest if isinstance(n, nodes.section | revealjs_notes)]
            aside = [n for n in rest if "aside" in n["classes"]]
            words = [n for n in rest if n not in after + aside]
            words = nodes.container("", *words, classes=["words"])
            body = nodes.container("", words, *aside, classes=["body"])
            for steps in body.findall(revealjs_fragments):
                points = steps.findall(nodes.Element)
                first = next(node for node in points if "fragment" in node["classes"])
                first["classes"].remove("fragment")  # a slide does not begin empty
            links = {f"/{self.config.root_doc}": ("std:doc", "The book")}
            for box in body.findall(nodes.container):
                for target, role in box.get("links", {}).items():
                    links.setdefault(target, (role, target))
            source = [self.link(target, *link) for target, link in links.items()]
            source = nodes.paragraph("", "", *source, classes=["source"])
            slide[:] = [title, body, source, *after]
        # sphinx-revealjs leaves the last column open
        self.document += html("</section>" * (3 - depth(slide)))

    def link(self, target, role, text):
        """A reference as the role would make it, under its own text if that is the target."""
        domain, kind = role.split(":")
        options = {"refdomain": domain, "reftype": kind, "reftarget": target}
        options |= {"refdoc": self.env.docname, "refexplicit": text != target}
        return pending_xref("", nodes.inline("", text), **options, refwarn=True)


def prepare(app):
    """Keep settings as they were: what a builder appends to one looks like an edit to the next."""
    if app.builder.name == "revealjs":
        # override: until its builder appends to a copy
        app.config.revealjs_static_path = app.config.html_static_path[:-1]


def finish(app, error):
    """Put reveal.js beside the pages."""
    if error or app.builder.name not in ("html", "revealjs"):
        return
    for name in ENGINE:
        target = Path(app.outdir, "_static", "revealjs", name)
        copy_asset(get_revealjs_path() / name, target.parent)


def setup(app):
    """Register with Sphinx."""
    app.setup_extension("sphinx_revealjs")
    # override: until sphinx-revealjs says so itself; it keeps nothing between pages
    app.extensions["sphinx_revealjs"].parallel_read_safe = True
    app.add_directive("from-page", FromPage)
    for transform in (FillBoxes, LayOut):
        app.add_post_transform(transform)
    app.connect("builder-inited", prepare, priority=0)
    app.connect("build-finished", finish)
    # override: code is highlighted as on the site, until it has a setting for that
    code = HTML5Translator.visit_literal_block, HTML5Translator.depart_literal_block
    app.registry.add_translation_handlers(nodes.literal_block, revealjs=code)
