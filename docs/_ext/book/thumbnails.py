"""Thumbnails: a chapter's first figure without words, where a link leads to it."""

import re
from pathlib import Path
from posixpath import dirname, join, normpath
from xml.etree import ElementTree
from xml.sax.saxutils import escape

from docutils import nodes
from fontTools.pens.boundsPen import ControlBoundsPen
from fontTools.svgLib.path import parse_path
from sphinx.transforms.post_transforms import SphinxPostTransform

from .site import html

SVG = "http://www.w3.org/2000/svg"
XLINK = "{http://www.w3.org/1999/xlink}href"
# In a drawing: an axis's tick, the line from a curve to its name, and an outline without ink.
TICK = re.compile(r"M ?0 0\s?[lL] ?(?:0 3|-3 0)\s*")
LEADER = re.compile(r"stroke-width: ?0?\.7\b")
UNINKED = {"fill:none", "fill: none"}


class Thumbnails(SphinxPostTransform):
    """Figures without words: on cards of chapters, in lines of class `read-on`, in a sheet of `exhibits`."""

    default_priority = 300
    builders = ("html", "dirhtml")

    def run(self, **kwargs):
        """Put a picture where a link leads to a chapter that has one, and of each section into a sheet."""
        for group in self.document.findall(nodes.container):
            if "cards" in group["classes"]:
                for item in group.findall(nodes.definition_list_item):
                    item.next_node(nodes.definition).append(self.linked(item))
            if "exhibits" in group["classes"]:
                group += [*self.exhibits()]
        for line in self.document.findall(nodes.paragraph):
            if "read-on" in line["classes"]:
                line.insert(0, self.linked(line))

    def linked(self, place):
        """The picture of the page that a place links first."""
        link = place.next_node(nodes.reference)
        if link is None:  # it leads nowhere, about which Sphinx has warned
            return html("")
        uri = link["refuri"].partition(".html")[0]
        page = normpath(join(dirname(self.env.docname), uri))
        return html(self.picture(self.env.get_doctree(page), page))

    def exhibits(self):
        """A link to each section of this page that has a figure, with its picture."""
        for section in self.env.get_doctree(self.env.docname).findall(nodes.section):
            if section.next_node(nodes.section) is None:
                name = section["ids"][0]
                if picture := self.picture(section, name):
                    title = (
                        f"<span>{escape(section.next_node(nodes.title).astext())}</span>"
                    )
                    yield html(f'<a href="#{name}">{picture}{title}</a>')

    def picture(self, part, name):
        """The first figure of a page or a part, written beside the site's other files, or nothing."""
        drawn = [
            i["uri"] for i in part.findall(nodes.image) if "jupyter_execute" in i["uri"]
        ]
        drawing = next((uri for uri in drawn if uri.endswith(".svg")), None)
        if drawing is None:
            return ""
        name = f"_static/thumbnails/{name.replace('/', '-')}.svg"
        target = Path(self.app.outdir) / name
        target.parent.mkdir(parents=True, exist_ok=True)
        width, height = wordless(Path(self.app.srcdir) / drawing.lstrip("/"), target)
        source = "../" * self.env.docname.count("/") + name
        size = f'width="{width}" height="{height}"'
        return f'<img class="thumbnail" src="{source}" alt="" loading="lazy" {size}>'


def wordless(source, target):
    """Write a figure without its words, their lines and its variant for a phone; return its size."""
    ElementTree.register_namespace("", SVG)
    root = ElementTree.parse(source).getroot()
    words = {
        f"#{e.get('id')}"
        for e in root.iter()
        if "scale(" in e.get("transform", "") or TICK.fullmatch(e.get("d", ""))
    }
    for parent in list(root.iter()):
        for child in list(parent):
            if (
                child.get("class") == "phone"
                or "scale(" in child.get("transform", "")
                or child.tag == f"{{{SVG}}}text"
                or child.get(XLINK) in words
                or (
                    LEADER.search(child.get("style", ""))
                    and "q" in child.get("d", "").lower()
                )
            ):
                parent.remove(child)
    left, top, right, bottom = extent(root)
    size = right - left, bottom - top
    root.set("viewBox", " ".join(f"{x:.1f}" for x in (left, top, *size)))
    for name, length in zip(("width", "height"), size, strict=True):
        root.set(name, f"{length:.0f}")
    svg = ElementTree.tostring(root, encoding="unicode")
    target.write_text(re.sub(r"(\d+\.\d)\d+", r"\1", svg), encoding="utf-8")
    return map(round, size)


def extent(root):
    """The edges of what is drawn, with room for the width of a line."""
    pen = ControlBoundsPen(None)
    outlines = {e for defined in root.iter(f"{{{SVG}}}defs") for e in defined}
    for drawn in root.iter():
        marker = f"M{drawn.get('x')} {drawn.get('y')}l0 0" if drawn.get("x") else ""
        path = drawn.get("d") or marker
        if path and drawn not in outlines and drawn.get("style") not in UNINKED:
            parse_path(path, pen)
    left, top, right, bottom = pen.bounds
    return left - 2, top - 2, right + 2, bottom + 2


def setup(app):
    """Register with Sphinx."""
    app.add_post_transform(Thumbnails)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
