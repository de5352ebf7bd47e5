"""Thumbnails: a chapter's first figure without words, where a link leads to it."""

from pathlib import Path
from posixpath import dirname, join, normpath
from xml.etree import ElementTree
from xml.sax.saxutils import escape

from docutils import nodes
from sphinx.transforms.post_transforms import SphinxPostTransform

from .site import html

SVG = "http://www.w3.org/2000/svg"


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
    """Write a figure without its words and its variant for a phone; return its size."""
    ElementTree.register_namespace("", SVG)
    root = ElementTree.parse(source).getroot()
    for parent in list(root.iter()):
        for child in list(parent):
            formula = "scale(" in child.get("transform", "")
            if formula or child.get("class") == "phone" or child.tag == f"{{{SVG}}}text":
                parent.remove(child)
    ElementTree.ElementTree(root).write(target, encoding="utf-8")
    return [round(float(root.get(name).removesuffix("pt"))) for name in ("width", "height")]


def setup(app):
    """Register with Sphinx."""
    app.add_post_transform(Thumbnails)
