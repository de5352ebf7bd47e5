"""How tall the parts of a page are on a phone, roughly, so that it need not lay them out to know.

A phone lays out what is near (`content-visibility` in book.css) and keeps room for the rest. Rather too
much than too little: where too little is kept, what is not laid out yet lies over what follows.
"""

import math
import re
from pathlib import Path

from docutils import nodes
from sphinx import addnodes
from sphinx.transforms.post_transforms import SphinxPostTransform

# in pixels at a width of 375
LINE, LETTERS, ROOM = 30, 40, 20
CODE, EQUATION, ROW, TITLE, FIGURE = 20, 52, 46, 80, 330
# class `tall-k` keeps 200 pixels times STEP to the power of k
STEP, STEPS = math.sqrt(2), 16
VIEW = re.compile(r'<svg class="phone"[^>]* viewBox="0 0 ([\d.]+) ([\d.]+)"')


class NoteHeights(SphinxPostTransform):
    """Give each section below a page's title, and each entry in one, a class with its height."""

    default_priority = 180  # before cells become tabs, of which one is seen
    builders = ("html", "dirhtml")

    def run(self, **kwargs):
        """Go through the sections of the second level."""
        for title in self.document.findall(nodes.title):
            section = title.parent
            if not isinstance(getattr(section.parent, "parent", None), nodes.document):
                continue
            parts = [n for n in section.children if isinstance(n, addnodes.desc)]
            for part in [section, *parts]:
                steps = math.log(max(self.height(part), 200) / 200, STEP)
                part["classes"].append(f"tall-{min(math.ceil(steps), STEPS)}")

    def height(self, node):
        """The height of a node in pixels; what is folded or in another tab has none."""
        if isinstance(node, nodes.Text | nodes.raw | nodes.comment):
            return 0
        if {"solution", "tag_jax", "tag_remove-cell"} & set(node.get("classes", ())):
            return ROOM
        if isinstance(node, nodes.literal_block):
            return CODE * (node.astext().count("\n") + 1) + 2 * ROOM
        if isinstance(node, nodes.math_block):
            return EQUATION * (node.astext().count(r"\\") + 1) + 2 * ROOM
        if isinstance(node, nodes.image):
            return self.drawing(node["uri"])
        if isinstance(node, nodes.title | addnodes.desc_signature):
            return TITLE + LINE * (len(node.astext()) // 30)
        if isinstance(node, nodes.row):
            return ROW * (1 + max(len(entry.astext()) for entry in node) // 30)
        if isinstance(node, nodes.paragraph):
            return LINE * math.ceil(len(node.astext()) / LETTERS) + ROOM
        inner = sum(map(self.height, node.children))
        return 1.25 * inner if isinstance(node, addnodes.desc) else inner  # it is indented

    def drawing(self, uri):
        """The height of a figure, which is as wide as the phone."""
        path = Path(self.env.srcdir) / uri.lstrip("/")
        found = path.suffix == ".svg" and VIEW.search(path.read_text(encoding="utf-8"))
        return 340 * float(found[2]) / float(found[1]) + ROOM if found else FIGURE


def setup(app):
    """Register with Sphinx."""
    app.add_post_transform(NoteHeights)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
