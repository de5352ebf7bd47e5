"""The pages as an EPUB: mathematics as MathML, figures as pictures, no script, the same bytes each time.

One framework, the short form of the library's version and what is left out are as on paper.
"""

import os
import posixpath
import re
import shutil
import time
from pathlib import Path

from docutils import nodes
from sphinx.builders.epub3 import Epub3Builder
from sphinx.transforms.post_transforms import SphinxPostTransform

from .figures import PHONE
from .paper import LEFT_OUT

STYLE = Path(__file__).with_suffix(".css")
ITEM = re.compile(r'(<item [^>]*href="([^"]+\.xhtml)"[^>]*) />')


class EbookBuilder(Epub3Builder):
    """Sphinx's builder without the library's reference, and with what EPUB wants to be told."""

    def write_documents(self, docnames):
        """Write what stands in the book."""
        super().write_documents({name for name in docnames if in_book(name)})

    def get_refnodes(self, doctree, result):
        """List what stands in the book."""
        return [n for n in super().get_refnodes(doctree, result) if in_book(n["refuri"])]

    # override: until Sphinx takes no style of extensions and themes into a book
    def copy_static_files(self):
        """Copy one style sheet."""
        self._static_dir.mkdir(parents=True, exist_ok=True)
        self.create_pygments_style_file()
        shutil.copy(STYLE, self._static_dir)

    # override: until Sphinx declares MathML
    def build_content(self):
        """Say which pages hold MathML, and leave out the variants of figures for phones."""
        super().build_content()
        for picture in self.outdir.glob("_images/*.svg"):
            picture.write_text(PHONE.sub("", picture.read_text("utf-8")), "utf-8")
        package = self.outdir / "content.opf"

        def declared(match):
            has = "<math" in (self.outdir / match[2]).read_text("utf-8")
            return f'{match[1]} properties="mathml" />' if has else match[0]

        package.write_text(ITEM.sub(declared, package.read_text("utf-8")), "utf-8")

    # override: until Sphinx's archive has the date of SOURCE_DATE_EPOCH
    def build_epub(self):
        """Pack the files, all of one date, so that the same book has the same bytes."""
        date = int(os.environ.get("SOURCE_DATE_EPOCH", time.time()))
        for path in self.outdir.rglob("*"):
            os.utime(path, (date, date))
        super().build_epub()


class Unlink(SphinxPostTransform):
    """Make text of links to pages that are not in the book, and give no name twice."""

    default_priority = 700  # after all links are resolved
    builders = ("epub",)

    def run(self, **kwargs):
        """Replace the links by what they hold, and take the name that sphinx-proof gives to all."""
        for section in self.document.findall(nodes.section):
            section["ids"] = [name for name in section["ids"] if name != "proof-content"]
        here = posixpath.dirname(self.env.docname)
        for link in list(self.document.findall(nodes.reference)):
            if link.get("internal") and "refuri" in link:
                page = posixpath.normpath(posixpath.join(here, link["refuri"]))
                if not in_book(page):
                    link.replace_self(link.children)


def in_book(page):
    """Whether a page, or an address in it, is in the book."""
    return not page.startswith(LEFT_OUT)


def settle(app, pagename, templatename, context, doctree):
    """Give the pages one style sheet."""
    if app.builder.name == "epub":
        sheets = ("pygments.css", STYLE.name)
        context["css_files"] = [f"_static/{name}" for name in sheets]


def setup(app):
    """Register with Sphinx."""
    app.add_builder(EbookBuilder, override=True)
    app.add_post_transform(Unlink)
    app.connect("html-page-context", settle, priority=900)
