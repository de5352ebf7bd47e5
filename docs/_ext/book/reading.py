"""Which pages are read: those that changed or warned, and all when what they are made from changes.

In a build of one page (`sphinx -D book_page=other/biases`) only that page is read, once the others have been.
"""

import logging
import re
from pathlib import Path

from sphinx.util.logging import SphinxLogRecordTranslator, WarningStreamHandler
from sphinx.util.parallel import make_chunks
from sphinx_proof.domain import ProofDomain

from . import kept

MADE_FROM = (*kept.USED, "docs/_ports")


class Complaints(logging.Filter):
    """Has each page that warns read again, so that it warns again; drops what follows from a broken cell."""

    def __init__(self, env):
        super().__init__()
        self.env, self.broken = env, set()

    def filter(self, record):
        """Look at a warning whose location is a path and perhaps a line, before it is counted and printed."""
        if not (place := getattr(record, "location", None)):
            return True
        page = self.env.path2doc(re.sub(r":(\d+|None)?$", "", place))
        self.env.reread_always.add(page)
        if page in self.broken or self.env.config.book_page not in ("", page):
            return False
        if getattr(record, "type", "") == "cell":
            self.broken.add(page)
        return True


def prepare(app):
    """Listen to warnings, and note in a file from what pages are made, if from something else than before."""
    stamp, now = Path(app.doctreedir, "made-from"), kept.state(*MADE_FROM)
    if not stamp.is_file() or stamp.read_text("utf-8") != now:
        stamp.write_text(now, encoding="utf-8")
    app.connect("doctree-read", lambda app, doctree: app.env.note_dependency(stamp))
    for handler in logging.getLogger("sphinx").handlers:
        if isinstance(handler, WarningStreamHandler):
            handler.filters.sort(
                key=lambda one: not isinstance(one, SphinxLogRecordTranslator)
            )
            handler.filters.insert(1, Complaints(app.env))


def choose(app, env, docnames):
    """Read only the page that is worked on, once the others are read; else give all chunks equal work."""
    wanted = app.config.book_page
    if wanted and set(env.all_docs) - {wanted}:
        root = app.config.root_doc  # which may list the page by now
        one = {wanted} if wanted in env.toctree_includes.get(root, ()) else {wanted, root}
        docnames[:] = [name for name in docnames if name in one]
        app.parallel = 1  # another process would need a copy of what all pages say
    docnames.sort(key=lambda name: -Path(env.doc2path(name)).stat().st_size)
    chunks = len(make_chunks(docnames, app.parallel))
    docnames[:] = [name for first in range(chunks) for name in docnames[first::chunks]]


def leave(app, builder):
    """Write only the page that is worked on, and none that lists it; source code for the site only."""
    if app.config.book_page:
        app.env.files_to_rebuild = {}
    if app.config.book_page or builder.name == "revealjs":
        # override: until viewcode asks whether it is wanted
        app.env._viewcode_modules = {}


def setup(app):
    """Register with Sphinx."""
    app.add_config_value("book_page", "", "", types=[str])
    app.connect("builder-inited", prepare)
    app.connect("env-before-read-docs", choose, priority=100)
    app.connect("write-started", leave)
    # override: without it two processes end in `KeyError: 0` (0.4.0, nine pages), until its domain has such
    # a method; it keeps its list in the environment and merges it there
    ProofDomain.merge_domaindata = lambda *read: None
