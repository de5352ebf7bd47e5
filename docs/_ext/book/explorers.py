"""Explorers: a panel that moves, in the place of a still picture.

    :::{explorer} pull
    :data: pull
    What paper says instead.
    :::

The script is `_static/explorers/pull.js`, and a page loads the scripts of what it shows. `data` names
what a cell glued for it. Below a captioned figure an explorer without text takes the figure's place, and
its caption. Each can stand in another page, as `embed/pull.html`.
"""

import ast
import json
from pathlib import Path
from typing import ClassVar

from docutils import nodes
from docutils.parsers.rst import directives
from myst_nb.core.variables import RetrievalError
from myst_nb.ext.glue.utils import retrieve_glue_data
from sphinx.transforms import SphinxTransform
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective

STATIC = Path(__file__).parents[2] / "_static"
SCRIPTS = STATIC / "explorers"
logger = logging.getLogger(__name__)


class Explorer(SphinxDirective):
    """Take the name of an explorer, what it is given, and its twin."""

    required_arguments = 1
    has_content = True
    option_spec: ClassVar = {"data": directives.unchanged_required}

    def run(self):
        """Return a box with the twin and the data, which scripts fill."""
        name = self.arguments[0]
        if not (SCRIPTS / f"{name}.js").is_file():
            raise self.error(f"no script {name}.js in docs/_static/explorers")
        box = nodes.container(classes=["explorer", f"explorer-{name}"], explorer=name)
        box += self.parse_content_to_nodes()
        box["waits"] = not box.children
        if "data" in self.options:
            try:
                glued = retrieve_glue_data(self.state.document, self.options["data"])
            except RetrievalError as missing:
                raise self.error(str(missing)) from None
            given = json.dumps(
                ast.literal_eval(glued.data["text/plain"]), separators=(",", ":")
            )
            box["given"] = f'<script type="application/json">{given}</script>'
            box += nodes.raw("", box["given"], format="html", classes=["screen"])
        self.set_source_info(box)
        return [box]


class TakePlaces(SphinxTransform):
    """Put the cell above, with its figure, into an explorer that has no twin of its own."""

    default_priority = 411  # when figures have their drawings

    def apply(self, **kwargs):
        """Look for a figure before each box that waits."""
        for box in list(self.document.findall(nodes.container)):
            if not box.attributes.pop("waits", False):
                continue
            # a figure may stand above the container that a box is in
            places = [box, box.parent][: 1 + isinstance(box.parent, nodes.container)]
            for place in places:
                above = place.parent[place.parent.index(place) - 1]
                if above.next_node(nodes.figure):
                    break
            else:
                logger.warning("no figure stands above this explorer", location=box)
                continue
            above.parent.remove(above)
            box.insert(0, above)


def load(app, pagename, templatename, context, doctree):
    """Load the scripts of a page's explorers, and write each explorer into a page of its own."""
    boxes = (
        list(doctree.findall(lambda n: isinstance(n, nodes.container) and "explorer" in n))
        if doctree
        else []
    )
    if app.builder.name != "html" or not boxes:
        return
    for name in dict.fromkeys(["panel", *(box["explorer"] for box in boxes)]):
        app.add_js_file(f"explorers/{name}.js", loading_method="defer")
    for box in boxes:
        name = box["explorer"]
        shown = {
            "title": app.env.titles[pagename].astext(),
            "page": app.builder.get_target_uri(pagename),
            "name": name,
            "given": box.get("given", ""),
        }
        target = Path(app.outdir, "embed", f"{name}.html")
        target.parent.mkdir(exist_ok=True)
        target.write_text(app.builder.templates.render("embed.html", shown), "utf-8")


def setup(app):
    """Register with Sphinx."""
    app.add_directive("explorer", Explorer)
    app.add_transform(TakePlaces)
    app.connect("html-page-context", load)
