"""What our book adds to Sphinx, one module for each thing that a reader gets."""

from . import (
    api,
    assets,
    benchmarks,
    captions,
    cells,
    deck,
    ebook,
    exercises,
    explorers,
    gates,
    heights,
    kernels,
    mathematics,
    notebooks,
    numerics,
    pages,
    paper,
    place,
    progress,
    prose,
    scratch,
    slides,
    twins,
    website,
)

PARTS = (
    api, benchmarks, captions, cells, deck, ebook, exercises, explorers, gates, heights, kernels,
    mathematics, assets, notebooks, numerics, pages, paper, place, progress, prose, scratch, slides,
    twins, website,
)  # fmt: skip


def setup(app):
    """Set up every part."""
    for part in PARTS:
        part.setup(app)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
