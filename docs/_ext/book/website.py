"""The site around the pages: lean heads, a content security policy, thumbnails, and what others read.

Where the address of the site is configured (`html_baseurl`), pages carry a canonical address and a
picture for links, and the site a map; without one they work from any folder.
"""

import base64
import hashlib
import io
import re
from html import escape
from pathlib import Path
from xml.etree import ElementTree
from xml.sax.saxutils import escape as escape_xml

import numpy as np
from docutils import nodes
from sphinx.transforms.post_transforms import SphinxPostTransform
from sphinx.util import logging

from posattn import figures, reference

# Styles of extensions of which book.css says the little that the pages need.
UNUSED = re.compile(
    r"mystnb\.|proof\.css|sphinx-design|furo-extensions|katex-math|copybutton\.css"
)
ONLY_SEARCH = re.compile(r"doctools\.js|sphinx_highlight\.js")
TEXT_FACES = {  # and what needs it
    "source-serif-4-400-normal": "",
    "source-sans-3-400-normal": "",
    "source-sans-3-600-normal": "",
    "source-serif-4-400-italic": "<em>",
    "source-serif-4-600-normal": "<strong>",
}
# Scripts run from files, or inline with these hashes. Styles need 'unsafe-inline', since KaTeX places
# its boxes with style attributes and furo writes its colours into each page.
POLICY = (
    "default-src 'self'; script-src 'self' {scripts}; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data:; object-src 'none'; base-uri 'self'; form-action 'self'"
)
INLINE = re.compile(r"<script(?![^>]*\bsrc=)[^>]*>(.*?)</script>", re.DOTALL)
# What furo, Sphinx and extensions write that a browser or a screen reader stumbles over.
MENDS = (
    ('<aside class="sidebar-drawer', '<aside aria-label="Book" class="sidebar-drawer'),
    ('<aside class="toc-drawer', '<aside aria-label="Page" class="toc-drawer'),
    (' role="doc-biblioentry"', ' role="listitem"'),  # the former is out of use
    ('<div id="search-results">', '<h1>Search</h1>\n<div id="search-results">'),
)
SIGNATURE = re.compile(
    r'<dl>\s*((?:<dd><em class="sig-param">(?:(?!</dd>).)*</dd>\s*)+)</dl>', re.DOTALL
)
OUTLINE = re.compile(r'<path id="([^"]+)" d="[^"]*"[^>]*/>')  # of a letter
NAMED = re.compile(r' id="((?:equation-|tab-|tab_|proof-content)[^"]*)"')
HIDDEN = {"404", "search", "genindex"}
SVG = "http://www.w3.org/2000/svg"
LETTER = {"scale(0.015625)", "scale(.15625)"}  # on such an outline, by Matplotlib and by us
logger = logging.getLogger(__name__)


def dress(app, pagename, templatename, context, doctree):
    """Reduce a page's head to what the page uses, and say what the page is."""
    if app.builder.name == "epub":
        return
    body = context.get("body", "")
    styles = [(css, getattr(css, "filename", css)) for css in context["css_files"]]
    context["css_files"] = [
        css
        for css, name in styles
        if not UNUSED.search(name) and ("katex" not in name or "katex" in body)
    ]
    if app.builder.name == "revealjs":
        return
    if pagename != "search":
        context["script_files"] = [
            js
            for js in context["script_files"]
            if not ONLY_SEARCH.search(getattr(js, "filename", js))
        ]
    link = context["pathto"]
    tags = []
    for face, needed_by in TEXT_FACES.items():
        if needed_by in body:
            path = link(f"_static/fonts/{face}.woff2", 1)
            tags.append(
                f'<link rel="preload" as="font" type="font/woff2" crossorigin href="{path}">'
            )
    address = app.config.html_baseurl
    if address:
        title = escape(
            re.sub("<[^>]+>", "", context.get("title", "")) or app.config.html_title
        )
        described = re.search(
            r'content="([^"]*)" name="description"', context.get("metatags", "")
        )
        properties = {
            "og:type": "website" if pagename == app.config.root_doc else "article",
            "og:title": title,
            "og:site_name": escape(app.config.html_title),
            "og:description": described[1] if described else "",
            "og:url": context.get("pageurl", ""),
            "og:image": f"{address.rstrip('/')}/_static/order.png",
        }
        tags += [f'<meta property="{k}" content="{v}">' for k, v in properties.items() if v]
        tags.append('<meta name="twitter:card" content="summary_large_image">')
    if pagename == "404":  # shown at any address, so its links start from the site's
        tags.append('<meta name="robots" content="noindex">')
        if address:
            tags.insert(0, f'<base href="{escape(address.rstrip("/"))}/">')
    context["metatags"] = context.get("metatags", "") + "\n".join(tags)


class Thumbnails(SphinxPostTransform):
    """Give each chapter in a list of class `chapters` a thumbnail: its first figure, without words."""

    default_priority = 300
    builders = ("html", "dirhtml")

    def run(self, **kwargs):
        """Put a picture before each item."""
        for group in self.document.findall(
            lambda node: isinstance(node, nodes.container) and "chapters" in node["classes"]
        ):
            for item in list(group.findall(nodes.definition_list_item)):
                link = item.next_node(nodes.reference)
                if link is None:  # it leads nowhere, about which Sphinx has warned
                    continue
                page = link["refuri"].removesuffix(".html")
                items = item.parent
                place = items.index(item)
                items.insert(place + 1, nodes.raw("", "</div>", format="html"))
                items.insert(place, nodes.raw("", '<div class="item">', format="html"))
                item.next_node(nodes.term).insert(
                    0, nodes.raw("", self.picture(page), format="html")
                )

    def picture(self, page):
        """The thumbnail of a page, written beside the site's other files."""
        drawing = first_figure(self.app, page)
        if drawing is None:
            return '<span class="thumbnail" aria-hidden="true"></span>'
        name = f"_static/thumbnails/{page.replace('/', '-')}.svg"
        target = Path(self.app.outdir) / name
        target.parent.mkdir(parents=True, exist_ok=True)
        width, height = wordless(drawing, target)
        size = f'width="{width}" height="{height}"'
        return f'<img class="thumbnail" src="{name}" alt="" loading="lazy" {size}>'


def first_figure(app, page):
    """The path of the first figure that a cell of the page drew, or None."""
    images = app.env.get_doctree(page).findall(nodes.image)
    drawn = (i["uri"] for i in images if "jupyter_execute" in i["uri"])
    path = next((uri for uri in drawn if uri.endswith(".svg")), None)
    return path and Path(app.srcdir) / path.lstrip("/")


def wordless(source, target):
    """Write a figure without its words and its variant for a phone; return its size."""
    ElementTree.register_namespace("", SVG)
    root = ElementTree.parse(source).getroot()
    letters = {f"#{e.get('id')}" for e in root.iter() if e.get("transform") in LETTER}
    for parent in list(root.iter()):
        for child in list(parent):
            if (
                child.get("class") == "phone"
                or child.get("transform") in LETTER
                or child.tag == f"{{{SVG}}}metadata"
                or child.get("{http://www.w3.org/1999/xlink}href") in letters
            ):
                parent.remove(child)
    svg = ElementTree.tostring(root, encoding="unicode")
    target.write_text(re.sub(r"(\d+\.\d)\d+", r"\1", svg), encoding="utf-8")
    return (round(float(root.get(side)[:-2])) for side in ("width", "height"))


def finish(app, error):
    """Write into each page which scripts may run, and, where the address is known, map and picture."""
    if app.builder.name != "html" or error:
        return
    site, address = Path(app.outdir), app.config.html_baseurl.rstrip("/")
    for page in site.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        if "Content-Security-Policy" in text or 'charset="utf-8">' not in text:
            continue
        hashes = sorted({f"'sha256-{digest(code)}'" for code in INLINE.findall(text)})
        policy = POLICY.format(scripts=" ".join(hashes))
        meta = f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        start = 'charset="utf-8">'
        page.write_text(mend(text.replace(start, start + meta, 1)), encoding="utf-8")
    if address:
        pages = sorted(app.env.found_docs - HIDDEN)
        urls = [f"{address}/{app.builder.get_target_uri(page)}" for page in pages]
        places = "".join(f"<url><loc>{escape_xml(url)}</loc></url>\n" for url in urls)
        (site / "sitemap.xml").write_text(
            '<?xml version="1.0" encoding="utf-8"?>\n'
            f'<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">\n{places}</urlset>\n'
        )
        (site / "robots.txt").write_text(
            f"User-agent: *\nAllow: /\nSitemap: {address}/sitemap.xml\n"
        )
        (site / "_static" / "order.png").write_bytes(picture())


def mend(text):
    """Name landmarks, give each name to one element, share letters, take lists out of signatures."""
    for wrong, right in MENDS:
        text = text.replace(wrong, right)

    def lines(match):
        items = (
            match[1].replace("<dd>", '<span class="sig-line">').replace("</dd>", "</span>")
        )
        return f'<span class="sig-lines">{items}</span>'

    return SIGNATURE.sub(lines, only_first(NAMED, only_first(OUTLINE, text)))


def only_first(pattern, text):
    """Take away what a pattern finds where it names, as its first group, what stood before."""
    seen = set()

    def kept(match):
        if match[1] in seen:
            return ""
        seen.add(match[1])
        return match[0]

    return pattern.sub(kept, text)


def digest(code):
    """The hash by which a browser knows an inline script."""
    return base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()


def two_orders():
    """What the figure of the first page shows."""
    words, other = ["the", "dog", "bites", "the", "man"], [0, 4, 2, 3, 1]
    vectors = np.random.default_rng(3).normal(size=(4, 4))
    first = vectors[[3, 1, 0, 3, 2]]  # the words in the order of the alphabet
    attend, add = reference.scaled_dot_product_attention, reference.PositionalEncoding(4)
    plain, placed = (first, first[other]), (add(first), add(first[other]))
    outputs = {
        "attention alone": [attend(x, x, x) for x in plain],
        "attention with positions": [attend(x, x, x) for x in placed],
    }
    return words, other, outputs


def picture():
    """The figure of the first page as a picture for links, 1200 by 630 pixels."""
    buffer = io.BytesIO()
    figure = figures.order(*two_orders())
    figure.set_size_inches(8, 4.2)
    figure.savefig(buffer, format="png", dpi=150, facecolor="white")
    return buffer.getvalue()


def setup(app):
    """Register with Sphinx."""
    app.add_post_transform(Thumbnails)
    app.connect("html-page-context", dress, priority=950)
    app.connect("build-finished", finish, priority=600)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
