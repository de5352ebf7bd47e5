"""What our book adds to Sphinx, one module for each thing that a reader gets.

Some of it overrides or patches what a package offers no way to change. Each entry says what would end it:

- `kernels`: `jupyter_client`'s `launch_kernel` is a fork, until MyST-NB can reuse a kernel that has imported.
- `site`: sphinxcontrib-katex has `throwOnError` in its defaults, until rendering at build time heeds
  `katex_options` (hagenw/sphinxcontrib-katex#65, #145).
- `site`: Node is started again if its socket was there before it listened, until sphinxcontrib-katex tries a
  refused connection again there too; its socket of a network does, but takes 90 ms for an equation.
- `site`: Node ends when its input does, until it does not outlive a build that is killed.
- `site`: pages with equations are written one after the other, until Node answers several processes.
- `site`: pages lose styles and scripts that they do not need, until MyST-NB, sphinx-design, sphinx-proof,
  sphinx-copybutton and furo add them where they are needed, as Sphinx lets them (sphinx-doc/sphinx#8631).
- `site`: the log is configured, until accessible-pygments leaves that to others.
- `site`, `MENDS`: until furo names its two `aside` and gives the search page a heading, and docutils writes
  no `role="doc-biblioentry"`, which DPUB-ARIA 1.1 deprecates.
- `site`, `SIGNATURE`: until Sphinx puts no `dl` into the `dt` of a long signature (sphinx-doc/sphinx#11011).
- `site`, `NAMED`: until Sphinx, sphinx-design and sphinx-proof give no name twice on a page.
- `site`, `OUTLINE`: until Matplotlib's figures can stand on one page without sharing names of letters.
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
