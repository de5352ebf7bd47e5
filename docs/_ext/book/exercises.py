"""Exercises: folded solutions, and the index `{exercises}` of all that the chapters ask.

A section whose title ends in "exercises" holds a section for each, `### 1. Name`, `### 2. Name`, in
which a section of class `solution` has the answer.
"""

import re
from contextlib import suppress
from html import escape

from docutils import nodes
from sphinx.errors import NoUri
from sphinx.transforms.post_transforms import SphinxPostTransform
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective
from sphinx.util.nodes import make_refnode

from .chapters import chapters
from .site import fold

NUMBER = re.compile(r"\d+\. ")
logger = logging.getLogger(__name__)


class Exercises(SphinxDirective):
    """Mark the place of the index."""

    def run(self):
        """Return an empty list, which is filled when all pages are read."""
        self.env.metadata[self.env.docname]["exercises"] = True
        index = nodes.definition_list(classes=["exercise-index", "simple"])
        self.set_source_info(index)
        return [index]


class FillIndex(SphinxPostTransform):
    """Name every exercise of every chapter, in the order of the book, with links."""

    default_priority = 2

    def run(self, **kwargs):
        """Put an entry for each page that has exercises into the list."""
        for index in self.document.findall(nodes.definition_list):
            if "exercise-index" in index["classes"]:
                for page, chapter in chapters(self.env).items():
                    with suppress(NoUri):  # of a page that the document leaves out
                        index += self.entries(chapter.name, page)
                if not index.children:
                    logger.warning("{exercises} finds no exercise", location=index)

    def entries(self, name, page):
        """The entry of a page as a list, which is empty if the page has no exercises."""
        found = exercises(self.env.get_doctree(page))
        if not found:
            return []
        term = nodes.term("", f"{name}: ")
        term += self.link(page, found[0].parent, self.env.titles[page].children)
        listed = nodes.enumerated_list(enumtype="arabic", prefix="", suffix=".")
        for exercise in found:
            first, *others = exercise.next_node(nodes.title).children
            title = [nodes.Text(NUMBER.sub("", first.astext(), count=1)), *others]
            link = nodes.paragraph("", "", self.link(page, exercise, title))
            listed += nodes.list_item("", link)
        return [nodes.definition_list_item("", term, nodes.definition("", listed))]

    def link(self, page, section, content):
        """A link to a section of a page."""
        text = nodes.inline("", "", *[child.deepcopy() for child in content])
        here, target = self.env.docname, section["ids"][0]
        return make_refnode(self.app.builder, here, page, target, text)


def exercises(document):
    """The sections of a page that are exercises, in order."""
    return [
        child
        for title in document.findall(nodes.title)
        if title.astext().lower().endswith("exercises")
        and isinstance(title.parent.parent, nodes.section)
        for child in title.parent
        if isinstance(child, nodes.section)
    ]


FOLDED = {"solution", "aside"}  # an aside is what a first reader skips


class Fold(SphinxPostTransform):
    """Fold each section of class `solution`, or `aside`, behind its title."""

    default_priority = 260
    builders = ("html", "dirhtml")

    def run(self, **kwargs):
        """Wrap what the sections hold."""
        for section in self.document.findall(nodes.section):
            for kind in FOLDED.intersection(section["classes"]):
                name, *rest = section.children
                section[:] = [
                    fold("", *rest, classes=[kind], summary=escape(name.astext()))
                ]


def setup(app):
    """Register with Sphinx."""
    app.add_directive("exercises", Exercises)
    app.add_post_transform(FillIndex)
    app.add_post_transform(Fold)
