"""Explorers: figures that move under the reader's finger, with a static twin for paper and for no script.

`{explorer} clocks` holds the static twin; `docs/_static/explorers.js` puts the live one in its place.
"""

from docutils import nodes
from sphinx.util.docutils import SphinxDirective

NAMES = ("clocks", "rotary")
SCRIPT = "explorers.js"


class Explorer(SphinxDirective):
    """Mark the place of an explorer around its static twin."""

    required_arguments = 1
    has_content = True

    def run(self):
        """Return the twin in a box that the script finds by its class."""
        (name,) = self.arguments
        if name not in NAMES:
            raise self.error(f"explorer must be one of {', '.join(NAMES)}, got {name!r}")
        if not self.content:
            raise self.error(f"explorer {name!r} must hold a static twin, got nothing")
        twin = nodes.container("", *self.parse_content_to_nodes(), classes=["twin"])
        box = nodes.container("", twin, classes=["explorer", f"explorer-{name}"])
        self.set_source_info(box)
        return [box]


def add_script(app, pagename, templatename, context, doctree):
    """Load the script where a page has an explorer, and nowhere else."""
    if doctree and any(
        "explorer" in box["classes"] for box in doctree.findall(nodes.container)
    ):
        app.add_js_file(SCRIPT, loading_method="defer")


def setup(app):
    """Register with Sphinx."""
    app.add_directive("explorer", Explorer)
    app.connect("html-page-context", add_script)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
