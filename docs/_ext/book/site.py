"""The site around the pages: they load what they need and no more.

What a page's head says besides, and the names of its landmarks, stand in `docs/_templates/page.html`.
"""

import re
import shutil
from pathlib import Path

from docutils import nodes

from posattn.stories import CHECKPOINT

# Files that extensions want on every page: book.css says the little that pages need of these styles, ...
UNUSED = (
    r"mystnb\.|proof\.css|sphinx-design|furo-extensions|katex-math|copybutton\.css"
    r"|doctools\.js|sphinx_highlight\.js"
)
NEEDED = {
    "katex": 'class="katex',
    "decoder": 'class="decoder',
}  # ... and these where they are


def lighten(app, pagename, templatename, context, doctree):
    """Leave out styles and scripts that a page does not need."""
    body = context.get("body", "")
    idle = [UNUSED, *(name for name, mark in NEEDED.items() if mark not in body)]
    idle = re.compile("|".join(idle))
    for kind in ("css_files", "script_files"):
        context[kind] = [
            file
            for file in context[kind]
            if not idle.search(str(getattr(file, "filename", file)))
        ]
    if app.builder.name == "revealjs":
        context["script_files"] = []


class fold(nodes.container):
    """What a reader of the web unfolds, below its `summary` in HTML; it needs no script."""


def open_fold(self, node):
    """Begin the element that HTML has for it."""
    kinds = " ".join(node["classes"])
    self.body.append(f'<details class="{kinds}"><summary>{node["summary"]}</summary>')


def close_fold(self, node):
    """End it."""
    self.body.append("</details>")


def html(text):
    """A node that is written as it is."""
    return nodes.raw("", text, format="html")


def finish(app, error):
    """Put the weights that the library carries beside the others."""
    if app.builder.name == "html" and not error:
        rotary = Path(app.outdir, "_static", "decoders", "rotary")
        rotary.mkdir(parents=True, exist_ok=True)
        shutil.copy(CHECKPOINT / "model.safetensors", rotary)


def setup(app):
    """Register with Sphinx."""
    app.add_node(fold, html=(open_fold, close_fold))
    # override: until MyST-NB, sphinx-design, sphinx-proof, sphinx-copybutton and furo add their files where
    # they are needed, as Sphinx lets them (sphinx-doc/sphinx#8631)
    app.connect("html-page-context", lighten, priority=950)
    app.connect("build-finished", finish)
