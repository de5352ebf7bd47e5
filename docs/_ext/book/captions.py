"""Figures: `{caption} fig-name` below a cell gives its drawing a number, a caption and words.

    :::{caption} fig-clocks
    :alt: Five rows of dials, whose hands turn clockwise.

    The five positions on *four* clocks.
    :::

The cell may be hidden or not, or two cells, one for each framework, which draw the same.
"""

from typing import ClassVar

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.transforms import SphinxTransform
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective

logger = logging.getLogger(__name__)


class Caption(SphinxDirective):
    """Caption the drawing of the cell above."""

    required_arguments = 1
    has_content = True
    option_spec: ClassVar = {"alt": directives.unchanged_required}

    def run(self):
        """Return an empty figure, which `Captions` fills."""
        self.assert_has_content()
        paragraph = self.parse_content_to_nodes()[0]
        caption = nodes.caption(paragraph.rawsource, "", *paragraph.children)
        alt = " ".join(self.options.get("alt", "").split())
        figure = nodes.figure("", caption, alt=alt, waits=True)
        self.options["name"] = self.arguments[0]
        self.add_name(figure)
        self.set_source_info(figure)
        return [figure]


class Captions(SphinxTransform):
    """Put each figure in the place of the drawing that it captions."""

    default_priority = 410  # when two cells have become tabs, with their drawing below

    def apply(self, **kwargs):
        """Look for the drawing among the outputs of what stands above."""
        for figure in list(self.document.findall(nodes.figure)):
            if not figure.attributes.pop("waits", False):
                continue
            alt = figure.attributes.pop("alt")
            drawing = drawing_above(figure)
            if drawing is None:
                logger.warning("no cell above draws what this captions", location=figure)
                continue
            for image in drawing.findall(nodes.image):
                image["alt"] = alt
            figure.parent.remove(figure)
            drawing.replace_self(figure)
            figure.insert(0, drawing)


def drawing_above(figure):
    """The last output with an image in the node before a figure, or None."""
    place = figure.parent.index(figure)
    above = figure.parent[place - 1] if place else nodes.container()
    bundles = above.findall(
        lambda node: (
            isinstance(node, nodes.container)
            and node.get("nb_element") == "mime_bundle"
            and node.next_node(nodes.image) is not None
        )
    )
    return max(bundles, key=lambda bundle: bundle.line or 0, default=None)


def setup(app):
    """Register with Sphinx."""
    app.add_directive("caption", Caption)
    app.add_transform(Captions)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
