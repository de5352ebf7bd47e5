"""What was seen of other software: its version and the day beside a sentence, or a list of all that was seen.

`nox -s record -- world` runs the files of `tests/nightly/world` and writes a record of each.
`` {seen}`vllm` `` prints the version and day of a record, and `` {seen}`vllm/max_model_len` `` leads to what
was run. `:::{facts} vllm` lists what a record has to say, each with its lines; words after the name choose.
What has no record is a warning.
"""

import datetime
import json
from pathlib import Path
from typing import ClassVar

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.transforms.post_transforms import SphinxPostTransform
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective, SphinxRole
from sphinx.util.nodes import make_refnode

from .site import fold

RECORDS = Path(__file__).parents[2] / "_records" / "world"
TABLE = "fix/libraries"  # where the cells of all records stand
logger = logging.getLogger(__name__)


def record(env, name):
    """A record as data, or nothing; the page is read again when it changes."""
    path = RECORDS / f"{name}.json"
    env.note_dependency(str(path))
    return json.loads(path.read_text("utf-8")) if path.is_file() else {}


def seen(found):
    """Version and day of a record, as people write them."""
    date = datetime.date.fromisoformat(found["date"])
    return f"{found['package']} {found['version']}, {date.day} {date:%B %Y}"


class Seen(SphinxRole):
    """Print version and day beside a sentence."""

    def run(self):
        """Look the record up."""
        name, _, what = self.text.partition("/")
        found = record(self.env, name)
        if not found or (what and what not in found["cells"] | found["facts"]):
            logger.warning("no record of %r", self.text, location=self.get_location())
            return [], []
        text = seen(found)
        cell = what in found["cells"]
        return [nodes.inline(text, text, classes=["seen"], seen=self.text, cell=cell)], []


class Facts(SphinxDirective):
    """List what a record says: a sentence each, with the lines that were run and what they printed."""

    required_arguments = 1
    optional_arguments = 1
    final_argument_whitespace = True
    option_spec: ClassVar = {"class": directives.class_option}

    def run(self):
        """Make an item of each fact."""
        name, *chosen = " ".join(self.arguments).split()
        found = record(self.env, name)
        if missing := set(chosen or ["any"]) - {*found.get("facts", ()), "any"}:
            raise self.error(f"no record of {name}/{missing.pop()}")
        self.env.metadata[self.env.docname].setdefault("facts", []).append(name)
        listed = nodes.bullet_list(classes=["facts"])
        for what in chosen or found.get("facts", ()):
            fact = found["facts"][what]
            item = nodes.list_item("", ids=[place(f"{name}/{what}")])
            item += self.parse_text_to_nodes(fact["says"])
            code = nodes.literal_block(fact["code"], fact["code"], language="python")
            prints = nodes.literal_block(fact["prints"], fact["prints"], language="none")
            item += fold("", code, prints, classes=["shown", "screen"], summary=seen(found))
            listed += item
        return [listed]


def place(text):
    """The id of what was seen."""
    return "seen-" + nodes.make_id(text)


class Lead(SphinxPostTransform):
    """Lead from each mark to what was run."""

    default_priority = 280
    builders = ("html", "dirhtml")

    def run(self, **kwargs):
        """Find the page that lists the record; it is the table if none does."""
        pages = {
            name: page
            for page, known in self.env.metadata.items()
            for name in known.get("facts", ())
        }
        here = self.env.docname
        for mark in self.document.findall(nodes.inline):
            if "seen" in mark:
                name = mark["seen"].partition("/")[0]
                page = TABLE if mark.get("cell") else pages.get(name, TABLE)
                text = nodes.Text(mark.astext())
                link = make_refnode(self.app.builder, here, page, place(mark["seen"]), text)
                mark.clear()
                mark += link


def setup(app):
    """Register with Sphinx."""
    app.add_role("seen", Seen())
    app.add_directive("facts", Facts)
    app.add_post_transform(Lead)
