"""What our pages need and no package offers.

Ink that follows the theme, folded solutions, asides, fresh outputs.
"""

import re
from html import escape
from importlib.resources import files
from pathlib import Path

from . import recordings
from docutils import nodes
from sphinx import builders
from sphinx.transforms.post_transforms import SphinxPostTransform
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective
from sphinx_proof.domain import ProofDomain

from posattn.figures.style import INK, KEY, POSITION, QUERY, VALUE

logger = logging.getLogger(__name__)


# The palette of posattn.figures, each colour with the name that the style sheet gives it per theme.
COLORS = {INK: "currentColor"} | {
    color: f"var(--{name}, {color})"
    for name, color in {
        "query": QUERY,
        "key": KEY,
        "value": VALUE,
        "position": POSITION,
    }.items()
}
HANDS = 6  # for each process
# the variant of a drawing for a phone
PHONE = re.compile(r'<svg class="phone" display="none".*?</svg>', re.DOTALL)


class InlineFigures(SphinxPostTransform):
    """Put executed SVG figures into the HTML itself, in the colours of the theme.

    A figure that carries a variant for a phone gives two drawings, of which the style sheet shows one.
    """

    default_priority = 250
    formats = ("html",)

    def run(self, **kwargs):
        """Replace every image that a cell drew."""
        for image, label, wide, small in drawings(self.app, self.document):
            elements = [inline(wide, label, "wide" if small else "")]
            if small:
                elements.append(inline(small, label, "phone"))
            html = f'<div class="drawing">{"".join(elements)}</div>'
            image.replace_self(nodes.raw(html, html, format="html"))


def drawings(app, document):
    """Each image that a cell drew, with its words, its drawing, and the one for a phone or None."""
    for image in list(document.findall(nodes.image)):
        if "jupyter_execute" not in image["uri"] or not image["uri"].endswith(".svg"):
            continue
        if not image.get("alt"):
            logger.warning("a figure has no alt text", location=image)
        svg = (Path(app.srcdir) / image["uri"].lstrip("/")).read_text(encoding="utf-8")
        small = PHONE.search(svg)
        wide = PHONE.sub("", svg[svg.index("<svg") :])
        label = escape(" ".join(image.get("alt", "").split()))
        yield image, label, themed(wide), themed(small[0]) if small else None


def themed(svg):
    """A drawing in the theme's colours, without names and facts that nobody asks for."""
    for color, name in COLORS.items():
        svg = re.sub(color, name, svg, flags=re.IGNORECASE)
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(
        r' id="(?:figure|axes|patch|line2d|text|matplotlib|xtick|ytick|legend)[\w.]*"',
        "",
        svg,
    )
    svg = svg.replace('class="phone" display="none" ', "", 1)
    return svg.replace("<svg", '<svg fill="currentColor"', 1)


def inline(svg, label, kind):
    """One drawing as an element of a page: as large as on paper or as the column allows."""
    svg = re.sub(
        r' width="([\d.]+)pt" height="[\d.]+pt"', r' style="max-width: \1pt"', svg, count=1
    )
    look = f"figure {kind}".strip()
    return svg.replace("<svg", f'<svg class="{look}" role="img" aria-label="{label}"', 1)


class FoldSolutions(SphinxPostTransform):
    """Fold each section of class `solution` behind its title."""

    default_priority = 260
    builders = ("html", "dirhtml")

    def run(self, **kwargs):
        """Wrap the sections into `details` elements, which need no script."""
        for section in self.document.findall(nodes.section):
            if "solution" not in section["classes"]:
                continue
            title = section.next_node(nodes.title)
            name = f"<summary>{escape(title.astext())}</summary>"
            body = [child for child in section.children if child is not title]
            section.children = [
                nodes.raw("", f'<details class="solution">{name}', format="html"),
                *body,
                nodes.raw("", "</details>", format="html"),
            ]


class Aside(SphinxDirective):
    """A remark beside the text."""

    has_content = True

    def run(self):
        """Return the remark in a box of class `aside`."""
        self.assert_has_content()
        box = nodes.container("", *self.parse_content_to_nodes(), classes=["aside"])
        self.set_source_info(box)
        return [box]


class NameAsides(SphinxPostTransform):
    """Give each aside the element that HTML has for it, as a note: a page has many, and one main part."""

    default_priority = 260
    builders = ("html", "dirhtml")

    def run(self, **kwargs):
        """Put `aside` elements into the place of the boxes."""
        for box in list(self.document.findall(nodes.container)):
            if "aside" in box["classes"]:
                box["classes"] = []
                box.replace_self(
                    [
                        nodes.raw("", '<aside class="aside" role="note">', format="html"),
                        *box.children,
                        nodes.raw("", "</aside>", format="html"),
                    ]
                )


def depend_on_code(app, doctree):
    """Read a page again when the library or an extension changes, so that nothing is ever stale."""
    for folder in (Path(str(files("posattn"))), Path(__file__).parent, recordings.SCRIPTS):
        for path in folder.rglob("*"):
            if path.suffix in (".py", ".json"):
                app.env.note_dependency(str(path))


def put_long_first(app, env, docnames):
    """Put long pages before short ones, so that each hand has its share."""
    docnames.sort(key=lambda name: -Path(env.doc2path(name)).stat().st_size)


def deal(docnames, processes):
    """Deal the pages into hands; a process that has read one takes the next, so that all end together."""
    hands = min(HANDS * processes, len(docnames))
    return [docnames[hand::hands] for hand in range(hands)]


def level_captions(app, pagename, templatename, context, doctree):
    """Give the captions of the sidebar, which Sphinx calls headings, the level of headings."""
    tree = context.get("furo_navigation_tree", "")
    context["furo_navigation_tree"] = tree.replace(
        'role="heading"', 'role="heading" aria-level="2"'
    )


def setup(app):
    """Register with Sphinx."""
    app.add_post_transform(InlineFigures)
    app.add_post_transform(FoldSolutions)
    app.add_directive("aside", Aside, override=True)  # sphinx-design's floats in the text
    app.add_post_transform(NameAsides)
    app.connect("doctree-read", depend_on_code)
    app.connect("env-before-read-docs", put_long_first)
    app.connect("html-page-context", level_captions, priority=900)
    builders.make_chunks = deal
    # It keeps its list in the environment and merges it there; Sphinx asks its domain as well.
    ProofDomain.merge_domaindata = lambda *read: None
    return {"parallel_read_safe": True, "parallel_write_safe": True}
