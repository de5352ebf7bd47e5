"""Figures: captions and alt text, ink in the theme's colours, and a variant for a phone.

`{caption} fig-name` below a cell gives its drawing a number, a caption and alt text:

    :::{caption} fig-pairs
    :alt: Five rows of dials, whose hands turn clockwise.

    The five positions as *four* pairs.
    :::

The cell may be hidden. Or there may be two cells, one for each framework, which draw the same.
"""

import re
from html import escape
from pathlib import Path
from typing import ClassVar

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.transforms import SphinxTransform
from sphinx.transforms.post_transforms import SphinxPostTransform
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective
from sphinx.util.nodes import get_node_line

from posattn.figures.style import INK, KEY, POSITION, QUERY, VALUE

from .site import html

# The palette of posattn.figures, each colour with the name that the style sheet gives it per theme.
COLORS = {INK: "currentColor"} | {
    color: f"var(--{name}, {color})"
    for color, name in (
        (QUERY, "query"),
        (KEY, "key"),
        (VALUE, "value"),
        (POSITION, "position"),
    )
}
PHONE = re.compile(r'<svg class="phone" display="none".*?</svg>', re.DOTALL)
FITTED = re.compile(r' textLength="[^"]*" lengthAdjust="[^"]*"')  # in the fonts of others
SIZE = re.compile(r' width="([\d.]+)pt" height="([\d.]+)pt"')
# Widths of code and text on a page in pixels, and on paper in points.
CODE, TEXT, PAPER = 880, 640, 468
HIGH = 750  # pixels, of a figure that leaves room for its caption
logger = logging.getLogger(__name__)


class Caption(SphinxDirective):
    """Caption the drawing of the cell above."""

    required_arguments = 1
    has_content = True
    option_spec: ClassVar = {"alt": directives.unchanged_required}

    def run(self):
        """Return a figure without its drawing, which `Captions` looks for."""
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
    drawings = [
        output
        for output in above.findall(nodes.container)
        if output.get("nb_element") == "mime_bundle" and output.next_node(nodes.image)
    ]
    return max(drawings, key=lambda output: output.line or 0, default=None)


class InlineFigures(SphinxPostTransform):
    """Put each drawing into the page itself, so that it follows the theme.

    With a variant for a phone there are two drawings, of which the style sheet shows one.
    """

    default_priority = 250
    builders = ("html", "dirhtml", "revealjs")

    def run(self, **kwargs):
        """Replace every image that a cell drew."""
        for image, label, wide, small in drawings(self.app, self.document):
            if self.app.builder.name == "html" and in_card(image):
                image["loading"] = "lazy"  # without ink, the same in each theme
                continue
            svg = inline(wide, label, "wide" if small else "")
            if small:
                svg += inline(small, label, "phone")
            image.replace_self(html(f'<div class="drawing">{svg}</div>'))


def in_card(image):
    """Whether an image is the picture on a card of the atlas, whose size the style sheet knows."""
    while image.parent and "scheme" not in image.parent.get("classes", ()):
        image = image.parent
    return bool(image.parent)


def drawings(app, document):
    """Each image that a cell drew, with its alt text, its drawing, and that for a phone or None."""
    for image in list(document.findall(nodes.image)):
        if "jupyter_execute" not in image["uri"] or not image["uri"].endswith(".svg"):
            continue
        if not image.get("alt"):
            place = app.env.docname, get_node_line(image)
            logger.warning("a figure has no alt text", location=place)
        svg = (Path(app.srcdir) / image["uri"].lstrip("/")).read_text(encoding="utf-8")
        wide, small = PHONE.sub("", svg[svg.index("<svg") :]), PHONE.search(svg)
        label = escape(" ".join(image.get("alt", "").split()))
        yield image, label, themed(wide), themed(small[0]) if small else None


def themed(svg):
    """A drawing in the theme's colours, its words in the fonts of the page."""
    for color, name in COLORS.items():
        svg = re.sub(color, name, svg, flags=re.IGNORECASE)
    svg = FITTED.sub("", svg).replace('class="phone" display="none" ', "", 1)
    return svg.replace("<svg", '<svg fill="currentColor"', 1)


def inline(svg, label, kind):
    """A drawing as an element of a page: as wide as code, or as text if it would be too high."""
    width, height = map(float, SIZE.search(svg).groups())
    column = CODE if kind == "phone" or height * CODE / PAPER < HIGH else TEXT
    svg = SIZE.sub(f' style="max-width: {width * column / PAPER:.0f}px"', svg, count=1)
    look = f"figure {kind}".strip()
    return svg.replace("<svg", f'<svg class="{look}" role="img" aria-label="{label}"', 1)


def setup(app):
    """Register with Sphinx."""
    app.add_directive("caption", Caption)
    app.add_transform(Captions)
    app.add_post_transform(InlineFigures)
