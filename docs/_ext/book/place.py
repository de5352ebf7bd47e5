"""Where a reader is: the line `{place}`, with the chapter, the time it takes, and what it needs.

The chapter's number comes from the toctrees of the root document, as in the PDF. The toctree with the
caption "Reference" counts in letters.
"""

import math

from docutils import nodes
from sphinx import addnodes
from sphinx.transforms.post_transforms import SphinxPostTransform
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective

from .cells import is_cell
from .exercises import FOLDED

APPENDICES = "Reference"
WORDS = 200  # a minute
EQUATION = CELL = 0.5  # minutes for a displayed equation, and for the code of a cell
logger = logging.getLogger(__name__)


class Place(SphinxDirective):
    """Take one line of links to what the reader needs, or nothing."""

    has_content = True

    def run(self):
        """Return the line, to which number and time are added when all is read."""
        place = nodes.paragraph(classes=["place"], page=self.env.docname)
        self.set_source_info(place)
        needs = self.parse_content_to_nodes()
        if needs:
            if [type(node) for node in needs] != [nodes.paragraph]:
                raise self.error("{place} holds one line of links, or nothing")
            place += needs[0].children
        return [place]


class NamePlace(SphinxPostTransform):
    """Write the line: chapter, time, needs."""

    default_priority = 1

    def run(self, **kwargs):
        """Put number and time before the links; on paper the line is in italics."""
        root = self.config.root_doc
        chapters = self.env.toctree_includes.get(root, [])
        appendices = [
            page
            for toctree in self.env.get_doctree(root).findall(addnodes.toctree)
            if toctree.get("caption") == APPENDICES
            for page in toctree["includefiles"]
        ]
        for place in self.document.findall(nodes.paragraph):
            if "place" not in place["classes"]:
                continue
            page = place["page"]
            if page not in chapters:
                said = "{place} stands on a page that no toctree of %s lists"
                logger.warning(said, root, location=place)
                continue
            words = [f"Chapter {chapters.index(page) + 1}"]
            if page in appendices:
                words = [f"Appendix {chr(ord('A') + appendices.index(page))}"]
            if "exercises" not in self.env.metadata[page]:  # which one works, not reads
                time = max(1, math.ceil(minutes(self.env.get_doctree(page))))
                words.append(f"{time} minute{'s' * (time > 1)}")
            needs = "You need: " if place.children else "No other chapter is needed"
            place.insert(0, nodes.Text(" · ".join([*words, needs])))
            if self.app.builder.name not in ("html", "dirhtml"):
                place[:] = [nodes.emphasis("", "", *place.children)]


def minutes(document):
    """The time for all words, equations and cells that are not folded; of a pair one reads one cell."""
    total = 0.0
    folded = [s for s in document.findall(nodes.section) if FOLDED & {*s["classes"]}]
    unread = {id(node) for section in folded for node in section.findall()}
    for node in document.findall(nodes.Element):
        if id(node) in unread:
            continue
        if isinstance(node, nodes.paragraph):
            total += len(node.astext().split()) / WORDS
        elif isinstance(node, nodes.math_block):
            total += EQUATION
        elif is_cell(node, visible=True) and not is_cell(node, "jax"):
            total += CELL
    return total


def level_captions(app, pagename, templatename, context, doctree):
    """Give the captions of the sidebar, which Sphinx calls headings, the level of headings."""
    tree = context.get("furo_navigation_tree", "")
    context["furo_navigation_tree"] = tree.replace(
        'role="heading"', 'role="heading" aria-level="2"'
    )


def setup(app):
    """Register with Sphinx."""
    app.add_directive("place", Place)
    app.add_post_transform(NamePlace)
    app.connect("html-page-context", level_captions, priority=900)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
