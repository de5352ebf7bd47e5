"""What our book adds to Sphinx, one module for each thing that a reader gets.

Some of it overrides or patches what a package offers no way to change. Each entry says what would end it;
`docs/_ext/upstream` has the patches that are ready to send:

- `cells`: the role `{glue:text}` keeps the name of what it pastes, until MyST-NB's node has it.
- `reading`: `ProofDomain.merge_domaindata` does nothing, until sphinx-proof's domain has such a method:
  without it two processes end in `KeyError: 0` (0.4.0, nine pages).
- `api`: a port's class has the signature of its source, until autodoc sees it behind a mocked base class.
- `api`, `LongSignatures`: until Sphinx puts no `dl` into the `dt` of one (sphinx-doc/sphinx#11011).
- `slides`: sphinx-revealjs is declared safe for reading in parallel, until it says so itself; code is
  highlighted as on the site, until it has a setting for that; the last column of its slides is closed, until
  its writer does so.
- `site`: viewcode is kept out of the deck and of a build of one page, until it asks whether it is wanted.
- `ebook`: `Epub3Builder` packs files of one date, writes one style sheet, and declares MathML, until Sphinx
  does; `sphinxcontrib.katex` renders MathML only, until its output is a setting for each builder; stray
  elements in KaTeX's MathML are mended, until KaTeX passes epubcheck.
- `place`: the parts in furo's sidebar fold, and have numbers, until furo folds captions.
- `kernels`: `jupyter_client`'s `launch_kernel` is a fork, until MyST-NB can reuse a kernel that has imported;
  its `single_nb_execution` takes what was kept, until its cache sees a change of the library; and it joins
  the pieces of a stream, until `nb_merge_streams` adds no line break.
- `site`: sphinxcontrib-katex has `throwOnError` in its defaults, until rendering at build time heeds
  `katex_options` (hagenw/sphinxcontrib-katex#65, #145).
- `site`: Node is started again if its socket was there before it listened, until sphinxcontrib-katex tries a
  refused connection again there too; its socket of a network does, but takes 90 ms for an equation.
- `site`: Node ends when its input does, until it does not outlive a start in vain, or a build that is killed.
- `site`: pages with equations are written one after the other, until Node answers several processes.
- `site`: pages lose styles and scripts that they do not need, until MyST-NB, sphinx-design, sphinx-proof,
  sphinx-copybutton and furo add them where they are needed, as Sphinx lets them (sphinx-doc/sphinx#8631).
- `search`: `StandaloneHTMLBuilder.search` is off, until another index may take the place of Sphinx's.
- `site`: the log is configured, until accessible-pygments leaves that to others.
- `site`, `OnlyOne`: until furo and sphinx-proof give no name twice on a page.
- `page.html` of the templates: until furo names its two `aside`, and docutils writes no
  `role="doc-biblioentry"`, which DPUB-ARIA 1.1 deprecates.
"""

PARTS = (
    "api", "badges", "cells", "ebook", "exercises", "explorers", "figures", "kernels", "lines", "models",
    "notebooks", "paper", "place", "reading", "scope", "search", "seen", "slides", "thumbnails", "twins",
    "site",
)  # fmt: skip


def setup(app):
    """Set up every part."""
    for part in PARTS:
        app.setup_extension(f"{__name__}.{part}")
    return {"parallel_read_safe": True, "parallel_write_safe": True}
