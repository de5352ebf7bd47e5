"""Which pages are read: those that changed or warned, and all when what they are made from changes.

In a build of one page (`sphinx -D book_page=other/biases`) only that page is read, once the others have been.
A cell that breaks is told in one line, and what follows from it is not told.
"""

import logging
import re
from pathlib import Path

from sphinx.util.logging import WarningStreamHandler
from sphinx.util.parallel import make_chunks
from sphinx_proof.domain import ProofDomain

from . import kept

MADE_FROM = (*kept.USED, "docs/_ext/book", "docs/_ports")
FAILED = re.compile(r"^Cell In\[(\d+)\], line (\d+)", re.MULTILINE)
COLOR = re.compile(r"\x1b\[[0-9;]*m")


def stamp(app):
    """The file on which all pages depend."""
    return Path(app.doctreedir, "made-from")


class Complaints(logging.Filter):
    """Looks at each warning before it is printed, and has its page read again, so that it comes again."""

    def __init__(self, env):
        super().__init__()
        self.env, self.broken = env, set()

    def filter(self, record):
        """Shorten what a broken cell says, and drop what follows from it, and from cells that did not run."""
        page, wanted = (
            self.page(getattr(record, "location", None)),
            self.env.config.book_page,
        )
        if page is None:
            return True
        self.env.reread_always.add(page)
        if page in self.broken or wanted not in ("", page):
            return False
        if (getattr(record, "type", ""), getattr(record, "subtype", "")) == (
            "mystnb",
            "exec",
        ):
            self.broken.add(page)
            record.msg, record.args = told(record.getMessage()), ()
        return True

    def page(self, location):
        """The page of a location, which is a node, a name and perhaps a line, or a path and a line."""
        if isinstance(location, tuple):
            location = location[0]
        elif not isinstance(location, str | None):
            location = location.source
        if not location or location in self.env.found_docs:
            return location or None
        return self.env.path2doc(re.sub(r":(\d+|None)?$", "", location))


def told(message):
    """In one line which cell broke, on which of its lines, and why."""
    message = COLOR.sub("", message).removesuffix(" [mystnb.exec]").rstrip()
    place, why = FAILED.search(message), message.rpartition("\n")[2]
    return f"cell {place[1]}, line {place[2]}: {why}" if place else f"a cell failed: {why}"


def prepare(app):
    """Listen to warnings, and see whether pages are made from something else than before."""
    now = kept.state(*MADE_FROM)
    if not stamp(app).is_file() or stamp(app).read_text("utf-8") != now:
        stamp(app).write_text(now, encoding="utf-8")
    for handler in logging.getLogger("sphinx").handlers:
        if isinstance(handler, WarningStreamHandler):
            handler.filters.insert(0, Complaints(app.env))


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


def depend(app, doctree):
    """Read each page again when what it is made from changes."""
    app.env.note_dependency(stamp(app))


def leave(app, builder):
    """Write only the page that is worked on, and none that lists it."""
    if app.config.book_page:
        app.env.files_to_rebuild = {}


def tell(app, env, docnames, other):
    """Say how far a build is when a process hands in its pages."""
    print(f"{len(env.all_docs)} of {len(env.found_docs)} pages are read", flush=True)


def setup(app):
    """Register with Sphinx."""
    app.add_config_value("book_page", "", "", types=[str])
    app.connect("builder-inited", prepare)
    app.connect("env-before-read-docs", choose, priority=100)
    app.connect("env-merge-info", tell)
    app.connect("doctree-read", depend)
    app.connect("write-started", leave)
    # It keeps its list in the environment and merges it there; Sphinx asks its domain as well.
    ProofDomain.merge_domaindata = lambda *read: None
    return {"parallel_read_safe": True, "parallel_write_safe": True}
