"""What sphinx-revealjs lacks here: the layout of a slide, and a deck that shares the files of the site."""

import re
from pathlib import Path

from docutils import nodes
from .pages import drawings
from sphinx.addnodes import pending_xref
from sphinx.transforms.post_transforms import SphinxPostTransform
from sphinx.util.fileutil import copy_asset
from sphinx.writers.html5 import HTML5Translator
from sphinx_revealjs._ext.notes import revealjs_notes
from sphinx_revealjs.utils import get_revealjs_path

SIZE = re.compile(r' width="([\d.]+)pt" height="([\d.]+)pt"')
# A figure stands outside of the page and its style sheet, so it carries the colours of slides.css.
COLORS = """<style>
:root { color: #1c2430; --query: #0072b2; --key: #d55e00; --value: #009e73; --position: #cc79a7; }
@media screen and (prefers-color-scheme: dark) {
  :root { color: #dfe5ec; --query: #56b4e9; --key: #f0904d; --value: #3fc79b; --position: #dd9fc4; }
}
</style>"""
EARLY = "revealjs/dist/reveal.js"  # which the first slide waits for
OPENED = re.compile(r"<section[ >]")
ENGINE = ["LICENSE", "dist/reveal.css", "dist/reveal.js", "plugin/notes/notes.js"]


class LayOut(SphinxPostTransform):
    """Give each slide a title, a body of words and what stands beside them, links, and notes."""

    default_priority = 2
    builders = ("revealjs",)

    def run(self, **kwargs):
        """Sort what a slide holds; the links lead to the book and to where the pieces come from."""
        for slide in list(self.document.findall(nodes.section)):
            title, *rest = slide.children
            after = [n for n in rest if isinstance(n, nodes.section | revealjs_notes)]
            aside = [n for n in rest if "aside" in n["classes"]]
            words = [n for n in rest if n not in after + aside]
            body = nodes.container(
                "", nodes.container("", *words, classes=["words"]), *aside
            )
            body["classes"].append("body")
            links = {f"/{self.config.root_doc}": ("std:doc", "The book")}
            for box in body.findall(nodes.container):
                for target, role in box.get("links", {}).items():
                    links.setdefault(target, (role, target))
            source = [self.link(target, *link) for target, link in links.items()]
            source = nodes.paragraph("", "", *source, classes=["source"])
            slide[:] = [title, body, source, *after]

    def link(self, target, role, text):
        """A reference as the role would make it, under its own text if that is the target."""
        domain, kind = role.split(":")
        options = {"refdomain": domain, "reftype": kind, "reftarget": target}
        options |= {"refdoc": self.env.docname, "refexplicit": text != target}
        return pending_xref("", nodes.inline("", text), **options, refwarn=True)


class LinkFigures(SphinxPostTransform):
    """Leave each figure in a file, which a browser fetches once its slide is near."""

    default_priority = 240  # before the site would put it into the page
    builders = ("revealjs",)

    def run(self, **kwargs):
        """Replace every image that a cell drew."""
        folder = Path(self.app.outdir, self.env.docname).parent / "figures"
        folder.mkdir(parents=True, exist_ok=True)
        for image, label, wide, small in drawings(self.app, self.document):
            name = Path(image["uri"]).stem
            html = f'<img class="figure" alt="{label}" loading="lazy"'
            html += f' src="figures/{name}.svg"{write(wide, folder / f"{name}.svg")}>'
            if small:
                size = write(small, folder / f"{name}-upright.svg")
                html = (
                    '<source media="screen and (max-aspect-ratio: 1/1)"'
                    f' srcset="figures/{name}-upright.svg"{size}>{html}'
                )
            html = f'<div class="drawing"><picture>{html}</picture></div>'
            image.replace_self(nodes.raw("", html, format="html"))


def write(svg, path):
    """Write a drawing as a file, and return its size as attributes."""
    path.write_text(svg.replace(">", f">{COLORS}", 1), encoding="utf-8")
    width, height = (round(float(side) * 96 / 72) for side in SIZE.search(svg).groups())
    return f' width="{width}" height="{height}"'


def prepare(app):
    """Keep settings as they were: what a builder appends to one looks like an edit to the next."""
    if app.builder.name == "revealjs":
        app.config.revealjs_static_path = app.config.html_static_path[:-1]
        for listener in list(app.events.listeners["html-collect-pages"]):
            if listener.handler.__module__ == "sphinx.ext.viewcode":  # nor for source code
                app.disconnect(listener.id)


def fetch_little(app, pagename, templatename, context, doctree):
    """Leave out the scripts that other extensions want on every page, and fetch early what a slide needs."""
    if app.builder.name == "revealjs":
        context["script_files"] = []
        path = context["pathto"](f"_static/{EARLY}", 1)
        tag = f'<link rel="preload" as="script" href="{path}">'
        context["metatags"] = context.get("metatags", "") + tag


def copy_engine(app, error):
    """Put what a deck needs of reveal.js beside the pages."""
    if app.builder.name in ("html", "revealjs") and not error:
        for name in ENGINE:
            target = Path(app.outdir, "_static", "revealjs", name)
            source = get_revealjs_path() / name
            copy_asset(source, target.parent)


def finish(app, error):
    """Write the end of the last column, which sphinx-revealjs leaves open."""
    if app.builder.name == "revealjs" and not error:
        for page in Path(app.outdir).rglob("*.html"):
            text = page.read_text(encoding="utf-8")
            start, slides, end = text.rpartition("</section>")
            left = len(OPENED.findall(text)) - text.count("</section>")
            page.write_text(start + slides * (1 + left) + end, encoding="utf-8")


def setup(app):
    """Register with Sphinx."""
    app.setup_extension("sphinx_revealjs")
    engine = app.extensions["sphinx_revealjs"]
    engine.parallel_read_safe = True  # it keeps nothing between pages
    app.add_post_transform(LayOut)
    app.add_post_transform(LinkFigures)
    app.connect("builder-inited", prepare, priority=0)
    app.connect("html-page-context", fetch_little, priority=900)
    app.connect("build-finished", copy_engine)
    app.connect("build-finished", finish)
    code = HTML5Translator.visit_literal_block, HTML5Translator.depart_literal_block
    app.registry.add_translation_handlers(nodes.literal_block, revealjs=code)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
