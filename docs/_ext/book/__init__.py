"""What our book adds to Sphinx, one module for each thing that a reader gets.

Some of it overrides or patches what a package offers no way to change. Each entry says what would end it:

- `cells`: `myst_nb.ext.glue.extract_glue_data_cell` also notes which cell glued what, until MyST-NB keeps
  that with the cell; it joins the pieces of a stream, until MyST-NB's `nb_merge_streams` adds no line break.
- `cells`: the role `{glue:text}` keeps the name of what it pastes, until MyST-NB's node has it.
- `cells`: `sphinx.builders.make_chunks` deals pages out by their length, until Sphinx hands a process its
  next page when it has read one.
- `cells`: `ProofDomain.merge_domaindata` does nothing, until sphinx-proof's domain has such a method:
  without it Sphinx reads pages one after the other.
- `api`: a port's class has the signature of its source, until autodoc sees it behind a mocked base class.
- `slides`: sphinx-revealjs is declared safe for reading in parallel, until it says so itself; code is
  highlighted as on the site, until it has a setting for that; the last column of its slides is closed, until
  its writer does so; viewcode is kept out of the deck, until viewcode asks whether a builder wants it.
- `paper`: `LaTeXBuilder.assemble_doctree` remembers which document it makes, until an entry of
  `latex_documents` can say what it leaves out.
- `ebook`: `Epub3Builder` packs files of one date, writes one style sheet, and declares MathML, until Sphinx
  does; `sphinxcontrib.katex` renders MathML only, until its output is a setting for each builder; stray
  elements in KaTeX's MathML are mended, until KaTeX passes epubcheck.
- `place`: the captions of furo's sidebar have a level, until Sphinx writes one.
- `site`: sphinxcontrib-katex: `throwOnError` is set in its defaults, since rendering at build time ignores
  `katex_options` (hagenw/sphinxcontrib-katex#65, #145).
- `site`: sphinxcontrib-katex: equations go through its network socket; the other one may be taken for ready before
  Node listens, and a connection that is refused is tried again only here (added in #69).
- `site`: sphinxcontrib-katex: Node outlives a build that is killed, unless it watches its input; to be reported.
- `site`: sphinxcontrib-katex: it does not say that pages cannot be written in parallel while Node renders them.
- `site`: Sphinx, MyST-NB, sphinx-design, sphinx-proof, sphinx-copybutton, furo: styles on pages that need none.
  Sphinx can add one to some pages (sphinx-doc/sphinx#8302, #8631); the extensions do not use that.
- `site`: furo: two `aside` without names, and a search page without a heading; to be reported.
- `site`: docutils: `role="doc-biblioentry"`, which DPUB-ARIA 1.1 has deprecated.
- `site`: Sphinx: a signature of several lines is a `dl` inside a `dt` (since sphinx-doc/sphinx#11011).
- `site`: Sphinx, sphinx-design, sphinx-proof: names that occur twice on a page: of equations, tabs, theorems.
- `site`: accessible-pygments: it configures the log of whoever imports it; to be reported.
- `site`: Matplotlib: outlines of the same letter have the same name in every figure, which is wrong once two of them
  stand on one page.
"""

from . import (
    api,
    cells,
    ebook,
    exercises,
    figures,
    kernels,
    notebooks,
    paper,
    place,
    progress,
    site,
    slides,
    tested,
    twins,
)

PARTS = (
    api, cells, ebook, exercises, figures, kernels, notebooks, paper, place, progress, slides,
    tested, twins, site,
)  # fmt: skip


def setup(app):
    """Set up every part."""
    for part in PARTS:
        part.setup(app)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
