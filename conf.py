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
paper_framework = "jax" if tags.has("jax") else "torch"  # sphinx-build -t jax
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
    "book",
]
exclude_patterns = [
    "_ext",
    "_records",
    "_static",
    "_templates",
    "**/.ipynb_checkpoints",
]
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
# there are no stubs, and it would import every module to look for some
autosummary_generate = False

# Cells: executed at every build.
nb_execution_mode = "force"
kernel_imports = ["posattn.torch", "posattn.jax", "posattn.figures"]
nb_execution_timeout = 300
nb_mime_priority_overrides = [
    (builder, mime, priority)
    for builder, picture in (
        ("html", "image/svg+xml"),
        ("epub", "image/svg+xml"),
        ("revealjs", "image/svg+xml"),
        ("notebooks", "image/svg+xml"),
        ("latex", "application/pdf"),
    )
    for mime, priority in ((picture, 10), ("text/plain", 100))
] + [("revealjs", "text/markdown", 50), ("notebooks", "text/markdown", 20)]
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
# the ports' own environments have them
autodoc_mock_imports = ["keras", "mlx", "mxnet", "tensorflow"]
napoleon_google_docstring = True
napoleon_numpy_docstring = False

bibtex_bibfiles = ["references.bib"]
bibtex_default_style = "plain"
bibtex_reference_style = "author_year"

katex_prerender = True
katex_css_path = "katex/katex.min.css"

doctest_test_doctest_blocks = ""
doctest_default_flags = 0  # as Python's: Sphinx would let dots and other messages pass

# Where the book lives: what is empty here gets no link.
repository = os.environ.get("POSATTN_REPOSITORY", "")
book_pdf = os.environ.get("POSATTN_PDF", "")

html_theme = "furo"
html_title = "Self-attention and positional encoding"
# Where the site will stand; without it, pages carry no address of their own.
html_baseurl = os.environ.get("READTHEDOCS_CANONICAL_URL") or os.environ.get(
    "POSATTN_SITE", ""
)
html_context = {"site": html_baseurl.rstrip("/")}
html_domain_indices = False  # its list of proofs names labels
templates_path = ["docs/_templates"]
html_static_path = ["docs/_static"]
html_favicon = "docs/_static/favicon.svg"
html_css_files = ["book.css"]
html_js_files = [
    "framework.js",
    *((name, {"loading_method": "defer"}) for name in ("scrollers.js", "decoder.js")),
]
pygments_style = "github-light-high-contrast"  # of accessible-pygments, as furo's own
pygments_dark_style = "github-dark-high-contrast"
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

# The book on paper, of which paper_framework says the edition.
framework = {"torch": "PyTorch", "jax": "JAX"}[paper_framework]
edition = "" if paper_framework == "torch" else f"-{paper_framework}"
latex_engine = "xelatex"
latex_use_xindy = False
latex_documents = [("index", f"posattn{edition}.tex", project, author, "manual", False)]
latex_additional_files = ["docs/_ext/book/paper.sty"]
latex_show_urls = "footnote"
latex_domain_indices = False
latex_table_style = ["booktabs"]
latex_elements = {
    "papersize": "",
    "pointsize": "10pt",
    "extraclassoptions": "openany,oneside",
    "figure_align": "htbp",
    "fncychap": "",
    "fontpkg": r"\usepackage{paper}",
    "sphinxsetup": (
        "verbatimwithframe=false, verbatimhintsturnover=false, verbatimsep=4pt, "
        "VerbatimColor={RGB}{246,246,243}, "
        "HeaderFamily=, TitleColor={RGB}{0,0,0}, "
        "InnerLinkColor={RGB}{11,83,148}, OuterLinkColor={RGB}{11,83,148}"
    ),
    "preamble": rf"\newcommand{{\editionname}}{{An executable book, with code in {framework}}}\bookstyle",
    "maketitle": r"\booktitle",
    "tableofcontents": r"\bookcontents{Introduction}",
    "printindex": "",
}

# The book for readers of EPUB, in the same edition as on paper.
epub_basename = f"posattn{edition}"
epub_title = project
epub_description = f"An executable book, with code in {framework}"
epub_identifier = epub_publisher = epub_contributor = "posattn"
epub_scheme, epub_uid = "name", "posattn"
epub_show_urls = "no"
epub_tocscope = "includehidden"
epub_use_index = False
