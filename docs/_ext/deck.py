"""What sphinx-revealjs lacks here: the layout of a slide, and a deck that shares the files of the site."""

import re
from pathlib import Path

from docutils import nodes
from pages import share_letters
from sphinx.addnodes import pending_xref
from sphinx.transforms.post_transforms import SphinxPostTransform
from sphinx.util.fileutil import copy_asset
from sphinx.writers.html5 import HTML5Translator
from sphinx_revealjs._ext.notes import revealjs_notes
from sphinx_revealjs.utils import get_revealjs_path

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


def prepare(app):
    """Keep settings as they were: what a builder appends to one looks like an edit to the next."""
    if app.builder.name == "revealjs":
        app.config.revealjs_static_path = app.config.html_static_path[:-1]
        app.config.html_domain_indices = False  # the theme has no page for one
        for listener in list(app.events.listeners["html-collect-pages"]):
            if listener.handler.__module__ == "sphinx.ext.viewcode":  # nor for source code
                app.disconnect(listener.id)


def drop_scripts(app, pagename, templatename, context, doctree):
    """Leave out the scripts that other extensions want on every page."""
    if app.builder.name == "revealjs":
        context["script_files"] = []


def copy_engine(app, error):
    """Put what a deck needs of reveal.js beside the pages."""
    if app.builder.name in ("html", "revealjs") and not error:
        for name in ENGINE:
            target = Path(app.outdir, "_static", "revealjs", name)
            source = get_revealjs_path() / name
            copy_asset(source, target if source.is_dir() else target.parent)


def finish(app, error):
    """Write the end of the last column, which sphinx-revealjs leaves open, and each letter once."""
    if app.builder.name == "revealjs" and not error:
        for page in Path(app.outdir).rglob("*.html"):
            text = page.read_text(encoding="utf-8")
            start, slides, end = text.rpartition("</section>")
            left = len(OPENED.findall(text)) - text.count("</section>")
            page.write_text(
                share_letters(start + slides * (1 + left) + end), encoding="utf-8"
            )


def setup(app):
    """Register with Sphinx."""
    app.setup_extension("sphinx_revealjs")
    app.add_post_transform(LayOut)
    app.connect("builder-inited", prepare, priority=0)
    app.connect("html-page-context", drop_scripts, priority=900)
    app.connect("build-finished", copy_engine)
    app.connect("build-finished", finish)
    code = HTML5Translator.visit_literal_block, HTML5Translator.depart_literal_block
    app.registry.add_translation_handlers(nodes.literal_block, revealjs=code)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
