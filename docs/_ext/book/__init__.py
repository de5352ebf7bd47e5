"""What our book adds to Sphinx, one module for each thing that a reader gets.

Some of it overrides what a package offers no way to change: `grep -rn "# override:" docs` lists that,
each with what would end it; `docs/_ext/upstream` has the patches that are ready to send.
"""

from importlib import import_module

from . import kept

PARTS = (
    "api", "cells", "ebook", "exercises", "explorers", "figures", "kernels", "lines", "mathematics",
    "models", "notebooks", "paper", "place", "reading", "scope", "search", "seen", "slides",
    "thumbnails", "twins", "site",
)  # fmt: skip


def setup(app):
    """Set up every part."""
    for part in PARTS:
        import_module(f"{__name__}.{part}").setup(app)
    # what was read by other modules is read again: its nodes may have no class any more
    made_by = kept.state("docs/_ext/book")
    return {"env_version": made_by, "parallel_read_safe": True, "parallel_write_safe": True}
