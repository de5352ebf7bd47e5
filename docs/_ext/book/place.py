"""Where a reader is: the directive `{place}` with links to what a page needs.

The chapter's number comes from the toctrees of the root document, as in the PDF; the time comes from
what there is to read.
"""

import math

from docutils import nodes
from sphinx.transforms import SphinxTransform
from sphinx.transforms.post_transforms import SphinxPostTransform
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective

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


class TakeTime(SphinxTransform):
    """Estimate how long a page takes, before pairs of cells become tabs."""

    default_priority = 390

    def apply(self, **kwargs):
        """Note the minutes with the place."""
        for place in places(self.document):
            place["minutes"] = max(1, math.ceil(minutes(self.document)))


class NamePlace(SphinxPostTransform):
    """Write the line: chapter, time, needs."""

    default_priority = 1

    def run(self, **kwargs):
        """Put number and time before the links; on paper the line is in italics."""
        chapters = self.env.toctree_includes.get(self.config.root_doc, [])
        for place in places(self.document):
            if place["page"] not in chapters:
                logger.warning(
                    "{place} stands on a page that no toctree of %s lists",
                    self.config.root_doc,
                    location=place,
                )
                continue
            number, time = chapters.index(place["page"]) + 1, place["minutes"]
            unit = "minute" if time == 1 else "minutes"
            needs = "You need: " if place.children else "No other chapter is needed"
            place.insert(0, nodes.Text(f"Chapter {number} · {time} {unit} · {needs}"))
            if self.app.builder.name not in ("html", "dirhtml"):
                place[:] = [nodes.emphasis("", "", *place.children)]


def places(document):
    """The lines of a document that say where it stands."""
    return list(
        document.findall(
            lambda n: "place" in getattr(n, "attributes", {}).get("classes", ())
        )
    )


def minutes(document):
    """The time for all words, equations and cells but the solutions; of a pair one reads one cell."""
    total = 0.0
    for node in document.findall(nodes.Element):
        if folded(node):
            continue
        if isinstance(node, nodes.paragraph):
            total += len(node.astext().split()) / WORDS
        elif isinstance(node, nodes.math_block):
            total += EQUATION
        elif "cell_input" in node["classes"] and "tag_jax" not in node.parent["classes"]:
            total += CELL
    return total


def folded(node):
    """Whether a node belongs to a solution."""
    while node is not None:
        if isinstance(node, nodes.section) and "solution" in node["classes"]:
            return True
        node = node.parent
    return False


def setup(app):
    """Register with Sphinx."""
    app.add_directive("place", Place)
    app.add_transform(TakeTime)
    app.add_post_transform(NamePlace)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
