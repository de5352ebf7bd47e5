"""The book's build. Run `nox -s docs`, or `sphinx-build -n -W --keep-going -c . docs build/html`."""

import os
import sys
from pathlib import Path

import posattn

sys.path.insert(0, str(Path(__file__).parent / "docs" / "_ext"))

project = "Self-Attention and Positional Encoding"
author = "The posattn authors"
copyright = "2026, the posattn authors. Text under CC BY 4.0, code under the MIT License"
release = version = posattn.__version__
today = " "  # the PDF says which release it is, not when it was made

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.doctest",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx_proof",
    "sphinxcontrib.bibtex",
    "sphinxcontrib.katex",
    "api",
    "deck",
    "gates",
    "katex_assets",
    "pages",
    "slides",
    "twins",
]
exclude_patterns = ["_ext", "_static", "slides/_*", "build", "**/.ipynb_checkpoints"]
nitpicky = True
nitpick_ignore_regex = [
    # types of frameworks and of jaxtyping: their documentation is not reachable from a build without network
    (
        "py:.*",
        r"(torch|jax|jaxlib|numpy|np|nn|jnp|jaxtyping|collections|dataclasses|matplotlib"
        r"|tensorflow|tf|keras|mlx|mx|mxnet)\..*",
    ),
    (
        "py:.*",
        r"(Bool|Float|Inexact|Integer|Num|Real|Array|Tensor|Callable|Self|Partial|Figure|ndarray|.*\[.*|.*\].*)",
    ),
]
numfig = True
default_role = "code"
python_maximum_signature_line_length = 88

# Cells: executed at every build.
nb_execution_mode = "force"
nb_execution_timeout = 300
nb_execution_raise_on_error = False
nb_execution_show_tb = True
nb_merge_streams = True
nb_mime_priority_overrides = [
    (builder, mime, priority)
    for builder, picture in (
        ("html", "image/svg+xml"),
        ("revealjs", "image/svg+xml"),
        ("latex", "application/pdf"),
    )
    for mime, priority in ((picture, 10), ("text/plain", 100))
]
os.environ.setdefault("JAX_PLATFORMS", "cpu")

myst_enable_extensions = [
    "amsmath",
    "attrs_block",
    "attrs_inline",
    "colon_fence",
    "deflist",
    "dollarmath",
]
myst_heading_anchors = 3
autodoc_default_options = {"members": True, "member-order": "bysource"}
autodoc_typehints_format = "short"
suppress_warnings = ["autodoc.mocked_object"]
autodoc_mock_imports = [
    "keras",
    "mlx",
    "mxnet",
    "tensorflow",
]  # the ports' own environments have them
napoleon_google_docstring = True
napoleon_numpy_docstring = False

bibtex_bibfiles = ["references.bib"]
bibtex_default_style = "plain"
bibtex_reference_style = "author_year"

katex_prerender = True
katex_css_path = "katex/katex.min.css"

doctest_test_doctest_blocks = ""

html_theme = "furo"
html_title = "Self-attention and positional encoding"
html_baseurl = os.environ.get("READTHEDOCS_CANONICAL_URL", "")
html_static_path = ["docs/_static"]
html_favicon = "docs/_static/favicon.svg"
html_css_files = ["book.css"]
html_theme_options = {
    "light_css_variables": {
        "color-brand-primary": "#0b5394",
        "color-brand-content": "#0b5394",
    },
    "dark_css_variables": {
        "color-brand-primary": "#7fb8ec",
        "color-brand-content": "#7fb8ec",
    },
}
html_copy_source = False
html_show_sourcelink = False
copybutton_exclude = ".linenos, .gp, .go"
copybutton_selector = "div.highlight:not(.cell_output *) pre"

revealjs_html_theme = "revealjs-simple"
revealjs_static_path = ["docs/_static"]
revealjs_style_theme = "slides.css"
revealjs_css_files = ["pygments.css"]
revealjs_use_section_ids = True
revealjs_script_files = ["slides.js"]
revealjs_script_conf = "deck"
revealjs_script_plugins = [{"name": "RevealNotes", "src": "revealjs/plugin/notes/notes.js"}]

latex_engine = "xelatex"
latex_use_xindy = False
latex_documents = [("index", "posattn.tex", project, author, "manual")]
latex_show_urls = "footnote"
latex_domain_indices = False
latex_elements = {
    "extraclassoptions": "openany,oneside",
    "figure_align": "H",
    "sphinxsetup": "hmargin=0.9in",
    "tableofcontents": r"""
\renewcommand{\contentsname}{Contents}
\sphinxtableofcontents
\chapter*{Introduction}
\addcontentsline{toc}{chapter}{Introduction}
\markboth{Introduction}{Introduction}
""",
    # Code begins with some lines or on the next page. The bibliography stands under the heading of its
    # own page, sorted by author and without numbers, since the text cites by author.
    "preamble": r"""
\renewcommand{\sphinxliteralblockwithoutcaptionneedspace}{6\baselineskip}
\makeatletter\renewcommand{\@biblabel}[1]{}\makeatother
\renewenvironment{sphinxthebibliography}[1]
  {\begingroup\renewcommand{\chapter}[2]{}\begin{thebibliography}{#1}}
  {\end{thebibliography}\endgroup}
""",
}
