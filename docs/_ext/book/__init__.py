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
"""

from . import (
    api,
    assets,
    benchmarks,
    cells,
    ebook,
    exercises,
    explorers,
    figures,
    heights,
    kernels,
    mathematics,
    notebooks,
    numerics,
    paper,
    place,
    progress,
    slides,
    tested,
    twins,
    website,
)

PARTS = (
    api, benchmarks, cells, ebook, exercises, explorers, figures, heights, kernels, mathematics,
    assets, notebooks, numerics, paper, place, progress, slides, tested, twins, website,
)  # fmt: skip


def setup(app):
    """Set up every part."""
    for part in PARTS:
        part.setup(app)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
