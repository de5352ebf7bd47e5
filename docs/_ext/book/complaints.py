"""What a build complains of: a cell that breaks is told once, and only pages that warned are read again."""

import json
import logging
import re
from pathlib import Path

from sphinx.util.logging import WarningStreamHandler

FAILED = re.compile(r"^Cell In\[(\d+)\], line (\d+)", re.MULTILINE)
COLOR = re.compile(r"\x1b\[[0-9;]*m")
SEEN = "warned.json"  # beside the pages that were read


class Complaints(logging.Filter):
    """Looks at each warning before it is printed."""

    def __init__(self, app):
        super().__init__()
        self.app, self.pages, self.broken = app, set(), {}

    def filter(self, record):
        """Note the page, shorten what a broken cell says, and drop what follows from it."""
        page = self.page(getattr(record, "location", None))
        if page is None:
            return True
        self.pages.add(page)
        kind = getattr(record, "type", None), getattr(record, "subtype", None)
        if kind == ("mystnb", "exec") and page not in self.broken:
            self.broken[page] = 0
            record.msg, record.args = told(record.getMessage()), ()
            return True
        if page in self.broken:
            self.broken[page] += 1
        return page not in self.broken

    def page(self, location):
        """The page of a location, which is a node, a name and perhaps a line, or a path and a line."""
        if isinstance(location, tuple):
            location = location[0]
        elif not isinstance(location, str | None):
            location = location.source
        if not location:
            return None
        env = self.app.env
        if location in env.found_docs:
            return location
        return env.path2doc(re.sub(r":(\d+|None)?$", "", location))


def told(message):
    """In one line which cell broke, on which of its lines, and why."""
    message = COLOR.sub("", message).removesuffix(" [mystnb.exec]").strip()
    place = FAILED.search(message)
    why = message.rpartition("\n")[2]
    if place is None:
        return f"a cell failed: {why}"
    return f"cell {place[1]}, line {place[2]}: {why}"


def listen(app):
    """Look at warnings from here on."""
    app.complaints = Complaints(app)
    for handler in logging.getLogger("sphinx").handlers:
        if isinstance(handler, WarningStreamHandler):
            handler.filters.insert(0, app.complaints)


def read_again(app, env, added, changed, removed):
    """Name the pages that warned when they were last read, so that their warnings come again."""
    path = Path(app.doctreedir, SEEN)
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else []


def remember(app, env):
    """Keep the names of the pages that have warned; a build that is ended earlier reads them again anyway."""
    warned = json.dumps(sorted(app.complaints.pages & env.found_docs))
    Path(app.doctreedir, SEEN).write_text(warned, encoding="utf-8")
    for page, more in app.complaints.broken.items():
        if more:
            print(
                f"{page}: {more} more warnings, which may follow from its broken cell",
                flush=True,
            )


def setup(app):
    """Register with Sphinx."""
    app.connect("builder-inited", listen)
    app.connect("env-get-outdated", read_again)
    app.connect("env-updated", remember)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
