"""Small books, built to see what the extensions make of them."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
FRONT_MATTER = """---
file_format: mystnb
kernelspec: {name: python3, display_name: Python 3, language: python}
---
"""
CONF = f"""
import sys
sys.path.insert(0, {str(ROOT / "docs" / "_ext")!r})
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx_design", "sphinxcontrib.bibtex",
              "sphinxcontrib.katex", "sphinx_proof", "book.cells", "book.ebook", "book.exercises",
              "book.figures", "book.kernels", "book.notebooks", "book.paper", "book.place", "book.site",
              "book.slides", "book.tested", "book.twins"]
html_theme = "furo"
templates_path = [{str(ROOT / "docs" / "_templates")!r}]
html_static_path = [{str(ROOT / "docs" / "_static")!r}]
html_css_files = ["book.css"]
html_js_files = ["framework.js"]
bibtex_bibfiles = ["references.bib"]
exclude_patterns = ["build"]
myst_enable_extensions = ["attrs_block", "colon_fence", "deflist", "dollarmath"]
nb_execution_mode = "force"
kernel_imports = ["posattn.figures"]
nb_execution_timeout = 300
nb_mime_priority_overrides = [("revealjs", "image/svg+xml", 10), ("epub", "image/svg+xml", 10),
                              ("latex", "application/pdf", 10)]
copyright = "2026, nobody"
version = "0"
epub_show_urls = "no"
revealjs_use_section_ids = True
katex_prerender = True
katex_css_path = "katex/katex.min.css"
"""
FIGURE = """
from posattn import figures
figures.offsets([1, 2, {last}])
"""


def cell(code, tags="", alt="waves", figure=""):
    head = f"---\ntags: [{tags}]\nmystnb:\n  image: {{{f'alt: {alt}' if alt else ''}}}\n{figure}---\n"
    return f"```{{code-cell}} python\n{head}{code}\n```\n\n"


def build(
    folder, pages, bibliography="", builder="html", only=(), settings="", processes=1
):
    """Build a small book, or some of its files; return its folder, its exit code and what was said."""
    (folder / "conf.py").write_text(CONF + settings)
    (folder / "references.bib").write_text(bibliography)
    toctree = "\n".join(
        ["# Book", "```{toctree}", *(p for p in pages if p != "api"), "```"]
    )
    (folder / "index.md").write_text(toctree)
    for name, text in pages.items():
        (folder / f"{name}.md").write_text(f"{FRONT_MATTER}# {name}\n\n{text}")
    command = [
        sys.executable,
        "-m",
        "sphinx",
        "-W",
        "--keep-going",
        "-q",
        "--no-color",
        f"--jobs={processes}",
        "-b",
        builder,
        "-d",
        str(folder / "build" / "doctrees"),
        str(folder),
        str(folder / "build" / builder),
        *(str(folder / name) for name in only),
    ]
    env = os.environ | {"SOURCE_DATE_EPOCH": "1767225600"}  # 2026
    result = subprocess.run(
        command, capture_output=True, text=True, timeout=900, check=False, env=env
    )
    return folder / "build" / builder, result.returncode, result.stderr
