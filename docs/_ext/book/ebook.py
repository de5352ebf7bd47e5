"""The pages as an EPUB: mathematics as MathML, figures as pictures, no script, the same bytes each time.

One framework, the short form of the library's version and what is left out are as on paper.
"""

import os
import posixpath
import re
import shutil
import time
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZIP_STORED, ZipFile, ZipInfo

from docutils import nodes
from sphinx.builders.epub3 import Epub3Builder
from sphinx.transforms.post_transforms import SphinxPostTransform
from sphinxcontrib import katex

from .figures import PHONE
from .paper import LEFT_OUT

STYLE = Path(__file__).with_suffix(".css")
ITEM = re.compile(r'(<item [^>]*href="([^"]+\.xhtml)"[^>]*) />')
# KaTeX ends an index such as n_\max with the sign of an application, as a third part of the pair.
STRAY = re.compile("<mo>\u2061</mo>(?=</m(?:sub|sup)>)")
# It writes \bmod as letters in a row inside an operator, which may hold nothing but text.
OPERATOR = re.compile(r"<mo ([^>]*)><mrow>((?:<mi[^>]*>[^<]*</mi>)+)</mrow></mo>")
LETTER = re.compile("<[^>]+>")


class EbookBuilder(Epub3Builder):
    """Sphinx's builder without the library's reference, and with what EPUB wants to be told."""

    def write_documents(self, docnames):
        """Write what stands in the book."""
        super().write_documents({name for name in docnames if in_book(name)})

    def get_refnodes(self, doctree, result):
        """List what stands in the book."""
        return [n for n in super().get_refnodes(doctree, result) if in_book(n["refuri"])]

    def copy_static_files(self):
        """Copy one style sheet."""
        self._static_dir.mkdir(parents=True, exist_ok=True)
        self.create_pygments_style_file()
        shutil.copy(STYLE, self._static_dir)

    def build_content(self):
        """Say which pages hold MathML, and mend it."""
        super().build_content()
        package = self.outdir / "content.opf"

        def declared(match):
            file = self.outdir / match[2]
            page = STRAY.sub("", file.read_text(encoding="utf-8"))
            page = OPERATOR.sub(lambda o: f"<mo {o[1]}>{LETTER.sub('', o[2])}</mo>", page)
            file.write_text(page, encoding="utf-8")
            return f'{match[1]} properties="mathml" />' if "<math" in page else match[0]

        package.write_text(ITEM.sub(declared, package.read_text("utf-8")), encoding="utf-8")

    def build_epub(self):
        """Pack the files, all of one date, so that the same book has the same bytes."""
        date = time.gmtime(int(os.environ.get("SOURCE_DATE_EPOCH", time.time())))[:6]
        named = ["META-INF/container.xml", "content.opf", "toc.ncx", "nav.xhtml"]
        with ZipFile(self.outdir / f"{self.config.epub_basename}.epub", "w") as epub:
            for name in dict.fromkeys(["mimetype", *named, *self.files]):
                form = ZIP_STORED if name == "mimetype" else ZIP_DEFLATED
                content = (self.outdir / name).read_bytes()
                epub.writestr(ZipInfo(name, date), content, compress_type=form)


class Figures(SphinxPostTransform):
    """Let pages refer to figures as pictures, each in the one variant that a reader shows."""

    default_priority = 240  # before they are put into the page
    builders = ("epub",)

    def run(self, **kwargs):
        """Write each figure anew, without its variant for a phone."""
        folder = Path(self.app.doctreedir) / "ebook"
        folder.mkdir(exist_ok=True)
        for image in self.document.findall(nodes.image):
            source = Path(self.app.srcdir) / image["uri"].lstrip("/")
            if source.suffix != ".svg":
                continue
            picture = folder / source.name
            svg = PHONE.sub("", source.read_text(encoding="utf-8"))
            picture.write_text(svg, encoding="utf-8")
            image["uri"] = str(picture)
            image["candidates"] = {"*": str(picture)}
            self.env.images.add_file(self.env.docname, str(picture))


class Unlink(SphinxPostTransform):
    """Make text of links to pages that are not in the book."""

    default_priority = 700  # after all links are resolved
    builders = ("epub",)

    def run(self, **kwargs):
        """Replace the links by what they hold."""
        here = posixpath.dirname(self.env.docname)
        for link in list(self.document.findall(nodes.reference)):
            if link.get("internal") and "refuri" in link:
                page = posixpath.normpath(posixpath.join(here, link["refuri"]))
                if not in_book(page):
                    link.replace_self(link.children)


def in_book(page):
    """Whether a page, or an address in it, is in the book."""
    return not page.startswith(LEFT_OUT)


def prepare(app):
    """Render mathematics as MathML alone."""
    if app.builder.name == "epub":
        katex.KATEX_DEFAULT_OPTIONS["output"] = "mathml"


def settle(app, pagename, templatename, context, doctree):
    """Give the pages one style sheet."""
    if app.builder.name == "epub":
        sheets = ("pygments.css", STYLE.name)
        context["css_files"] = [f"_static/{name}" for name in sheets]


def setup(app):
    """Register with Sphinx."""
    app.add_builder(EbookBuilder, override=True)
    app.add_post_transform(Figures)
    app.add_post_transform(Unlink)
    app.connect("builder-inited", prepare)
    app.connect("html-page-context", settle, priority=900)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
