"""The index of exercises, from the pages themselves: the directive `{exercises}`.

A section whose title ends in "exercises" holds nothing but exercises, `### 1. Name`, `### 2. Name`,
each with a section of class `solution` in which the build runs something. Other pages fail the build.
"""

import re

from docutils import nodes
from sphinx.transforms.post_transforms import SphinxPostTransform
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective
from sphinx.util.nodes import make_refnode

NUMBER = re.compile(r"(\d+)\. ")
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
                chapters = self.env.toctree_includes.get(self.config.root_doc, [])
                for number, page in enumerate(chapters, start=1):
                    index += self.entries(number, page)
                if not index.children:
                    logger.warning("{exercises} finds no exercise", location=index)

    def entries(self, number, page):
        """The entry of a page as a list, empty if the page has no exercises."""
        found = [e for s in sections(self.env.get_doctree(page)) for e in exercises(s)]
        if not found:
            return []
        term = nodes.term("", f"Chapter {number}: ")
        term += self.link(page, found[0].parent, self.env.titles[page].children)
        names = nodes.enumerated_list(enumtype="arabic", prefix="", suffix=".")
        for exercise in found:
            name = [child.deepcopy() for child in exercise.next_node(nodes.title).children]
            name[0] = nodes.Text(NUMBER.sub("", name[0].astext(), count=1))
            names += nodes.list_item(
                "", nodes.paragraph("", "", self.link(page, exercise, name))
            )
        definition = nodes.definition("", names)
        return [nodes.definition_list_item("", term, definition)]

    def link(self, page, section, content):
        """A link to a section of a page."""
        text = nodes.inline("", "", *[child.deepcopy() for child in content])
        here, target = self.env.docname, section["ids"][0]
        return make_refnode(self.app.builder, here, page, target, text)


def sections(document):
    """The sections of a page that hold exercises."""
    for title in document.findall(nodes.title):
        section = title.parent
        named = title.astext().lower().endswith("exercises")
        if named and isinstance(section.parent, nodes.section):
            yield section


def exercises(section):
    """The exercises of a section."""
    return [child for child in section.children if isinstance(child, nodes.section)]


def executed(node):
    """Whether the build runs this: a cell or a doctest."""
    return "cell" in node["classes"] or node.get("testnodetype") == "doctest"


def check(app, document):
    """Warn, and so fail the build, about exercises without number, or without an executed solution."""
    for section in sections(document):
        found = exercises(section)
        titles = [exercise.next_node(nodes.title).astext() for exercise in found]
        numbers = [NUMBER.match(title) for title in titles]
        wanted = [str(n) for n in range(1, len(found) + 1)]
        if not found or [match and match[1] for match in numbers] != wanted:
            logger.warning(
                "exercises must be sections `1. Name`, `2. Name` and so on",
                location=section,
            )
        for exercise, title in zip(found, titles, strict=True):
            solved = [n for n in exercises(exercise) if "solution" in n["classes"]]
            if not any(executed(n) for s in solved for n in s.findall(nodes.Element)):
                logger.warning(
                    "the exercise %s has no solution that is run", title, location=exercise
                )


def rewrite(app, env):
    """Write the pages that hold the index at every build, since any page may have changed."""
    return [page for page, facts in env.metadata.items() if facts.get("exercises")]


def setup(app):
    """Register with Sphinx."""
    app.add_directive("exercises", Exercises)
    app.add_post_transform(FillIndex)
    app.connect("doctree-read", check)
    app.connect("env-updated", rewrite)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
