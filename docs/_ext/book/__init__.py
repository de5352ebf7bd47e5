"""What our book adds to Sphinx, one module for each thing that a reader gets.

Where it changes what another package writes or does, and what would end that:

site
- sphinxcontrib-katex: `throwOnError` is set in its defaults, since rendering at build time ignores
  `katex_options` (hagenw/sphinxcontrib-katex#65, #145).
- sphinxcontrib-katex: it may connect before Node listens on a socket that is there, on a busy machine; to be
  reported. Its other socket, a network's, waits but takes 90 ms for an equation.
- sphinxcontrib-katex: Node outlives a build that is killed, unless it watches its input; to be reported.
- sphinxcontrib-katex: it does not say that pages cannot be written in parallel while Node renders them.
- Sphinx, MyST-NB, sphinx-design, sphinx-proof, sphinx-copybutton, furo: styles on pages that need none.
  Sphinx can add one to some pages (sphinx-doc/sphinx#8302, #8631); the extensions do not use that.
- furo: two `aside` without names, and a search page without a heading; to be reported.
- docutils: `role="doc-biblioentry"`, which DPUB-ARIA 1.1 has deprecated.
- Sphinx: a signature of several lines is a `dl` inside a `dt` (since sphinx-doc/sphinx#11011).
- Sphinx, sphinx-design, sphinx-proof: names that occur twice on a page: of equations, tabs, theorems.
- accessible-pygments: it configures the log of whoever imports it; to be reported.
- Matplotlib: outlines of the same letter have the same name in every figure, which is wrong once two of them
  stand on one page.
"""

from . import (
    api,
    captions,
    cells,
    deck,
    ebook,
    exercises,
    gates,
    kernels,
    notebooks,
    pages,
    paper,
    place,
    progress,
    prose,
    scratch,
    site,
    slides,
    twins,
)

PARTS = (
    api, captions, cells, deck, ebook, exercises, gates, kernels, notebooks, pages, paper, place,
    progress, prose, scratch, slides, twins, site,
)  # fmt: skip


def setup(app):
    """Set up every part."""
    for part in PARTS:
        part.setup(app)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
