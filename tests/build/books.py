"""Small books, built to see what our extension makes of them."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
BOOK = Path(__file__).with_name("book")
ADDRESS = "https://example.org/book"
FRONT_MATTER = """---
file_format: mystnb
kernelspec: {name: python3, display_name: Python 3, language: python}
---
"""
CONF = f"""
import sys
sys.path.insert(0, {str(ROOT / "docs" / "_ext")!r})
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.doctest", "sphinx.ext.napoleon",
              "sphinx.ext.viewcode", "sphinx_design", "sphinx_proof", "sphinxcontrib.bibtex",
              "sphinxcontrib.katex", "book"]
html_theme = "furo"
html_domain_indices = False
html_title = "A small book"
html_static_path = [{str(ROOT / "docs" / "_static")!r}]
html_css_files = ["book.css"]
html_js_files = [(name, {{"loading_method": "defer"}})
                 for name in ("framework.js", "scrollers.js", "decoder.js")]
html_baseurl = {ADDRESS!r}
html_context = {{"site": {ADDRESS!r}}}
templates_path = [{str(ROOT / "docs" / "_templates")!r}]
autodoc_mock_imports = ["mlx"]
bibtex_bibfiles = ["references.bib"]
exclude_patterns = ["build"]
myst_enable_extensions = ["attrs_block", "colon_fence", "deflist", "dollarmath"]
numfig = True
nb_execution_mode = "force"
nb_execution_timeout = 300
repository = "https://github.com/someone/posattn"
kernel_imports = ["posattn.figures"]
nb_mime_priority_overrides = [("revealjs", "image/svg+xml", 10), ("epub", "image/svg+xml", 10),
                              ("latex", "application/pdf", 10), ("notebooks", "image/svg+xml", 10),
                              ("notebooks", "text/markdown", 20), ("notebooks", "text/plain", 100)]
copyright = "2026, nobody"
version = "0"
epub_show_urls = "no"
revealjs_use_section_ids = True
katex_prerender = True
katex_css_path = "katex/katex.min.css"
"""


def write(folder, pages, bibliography="", settings=""):
    """Write a book of these pages, each below a title that is its name."""
    (folder / "conf.py").write_text(CONF + settings)
    (folder / "references.bib").write_text(bibliography)
    listed = "\n".join(name for name in pages if name != "unlisted")
    (folder / "index.md").write_text(f"# Book\n\n```{{toctree}}\n{listed}\n```\n")
    for name, text in pages.items():
        (folder / f"{name}.md").write_text(f"{FRONT_MATTER}# {name}\n\n{text}")


def copy(folder):
    """Copy the small book that has a piece of each kind."""
    shutil.copytree(BOOK, folder)
    (folder / "conf.py").write_text(CONF)


def build(folder, builder="html", *only, processes=1, options=()):
    """Build a book, or some of its pages; return where, the exit code and what was said."""
    out = folder / "build" / builder
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "--no-color"]
    command += ["-j", str(processes), "-b", builder, "-d", folder / "build" / "doctrees"]
    command += [*options, folder, out, *(folder / name for name in only)]
    done = subprocess.run(
        list(map(str, command)),
        env=os.environ | {"SOURCE_DATE_EPOCH": "1767225600"},  # when 2026 begins
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    return out, done.returncode, done.stderr


def cell(code, tags="", alt="waves"):
    """A cell with tags, whose figure shows this."""
    image = f"alt: {alt}" if alt else ""
    head = f"---\ntags: [{tags}]\nmystnb:\n  image: {{{image}}}\n---\n"
    return f"```{{code-cell}} python\n{head}{code}\n```\n\n"


def words(html):
    """What a reader reads of some HTML."""
    return " ".join(re.sub("<[^>]+>", "", html).split())
