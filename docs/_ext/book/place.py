"""Where a reader is: the line `{place}`, the parts of the sidebar, and the chapters of parts.

Nothing that `{place}` says a page needs may come after it.
"""

import math

from bs4 import BeautifulSoup
from docutils import nodes
from sphinx import addnodes
from sphinx.transforms.post_transforms import SphinxPostTransform
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective
from sphinx.util.nodes import make_refnode

from .cells import is_cell
from .chapters import CORE, chapters
from .exercises import FOLDED
from .site import html

# fitted to a first reading of 17 pages: three are off by more than a tenth, their sum is not
WORDS = 120  # a minute, with the formulas between them
EQUATION = CELL = 0.5  # minutes for a displayed equation, and for the code of a cell
FIGURE, PANEL = 0.25, 2  # for a picture, and for something to play with
logger = logging.getLogger(__name__)


class Place(SphinxDirective):
    """Take one line of links to what the reader needs, or nothing."""

    has_content = True

    def run(self):
        """Return the line, to which number and time are added when all is read."""
        place = nodes.paragraph(classes=["place"], page=self.env.docname)
        self.set_source_info(place)
        needs = self.parse_content_to_nodes()
        if needs:
            if [type(node) for node in needs] != [nodes.paragraph]:
                raise self.error("{place} holds one line of links, or nothing")
            place += needs[0].children
        return [place]


class NamePlace(SphinxPostTransform):
    """Write the line: chapter, time, needs."""

    default_priority = 1

    def run(self, **kwargs):
        """Put number and time before the links; on paper the line is in italics."""
        known = chapters(self.env)
        order = [*known]
        core = sum(chapter.core is not None for chapter in known.values())
        for place in self.document.findall(nodes.paragraph):
            if "place" not in place["classes"] or "page" not in place:
                continue
            page = place["page"]
            if page not in known:
                said = "{place} stands on a page that no toctree of %s lists"
                logger.warning(said, self.config.root_doc, location=place)
                continue
            for need in place.findall(addnodes.pending_xref):
                needed = need["reftarget"].lstrip("/")
                if needed in order and order.index(needed) >= order.index(page):
                    said = "{place} needs %s, which comes after %s"
                    logger.warning(said, needed, page, location=place)
            chapter = known[page]
            words = [chapter.name]
            if chapter.core:
                words.append(f"core {chapter.core} of {core}")
            if "exercises" not in self.env.metadata[page]:  # which one works, not reads
                time = minutes(self.env.get_doctree(page))
                words.append(f"{time} minute{'s' * (time > 1)}")
            needs = "You need: " if place.children else "No other chapter is needed"
            place.insert(0, nodes.Text(" · ".join([*words, needs])))
            if self.app.builder.name not in ("html", "dirhtml"):
                place[:] = [nodes.emphasis("", "", *place.children)]


def minutes(document):
    """The time for what is not in a fold; of a pair one reads one cell."""
    total = 0.0
    folded = [s for s in document.findall(nodes.section) if FOLDED & {*s["classes"]}]
    unread = {id(node) for section in folded for node in section.findall()}
    for node in document.findall(nodes.Element):
        if id(node) in unread:
            continue
        if isinstance(node, nodes.paragraph):
            total += len(node.astext().split()) / WORDS
        elif isinstance(node, nodes.math_block):
            total += EQUATION
        elif isinstance(node, nodes.figure):
            total += FIGURE
        elif is_cell(node, visible=True) and not is_cell(node, "jax"):
            total += CELL
        elif isinstance(node, nodes.container) and "explorer" in node["classes"]:
            total += PANEL
    return max(1, math.ceil(total))


class Part(SphinxDirective):
    """Take the names of parts, and list their chapters; what is said of a part stands below its name."""

    required_arguments = 1
    final_argument_whitespace = True
    has_content = True

    def run(self):
        """Return a place for the list, which is written when all is read."""
        names = self.arguments[0].split(", ")
        look = "cards" if {*names} <= {*CORE} else "compact"
        place = nodes.container(classes=["chapters", look, "screen"], parts=names)
        if self.content:
            place += nodes.rubric("", *names, **{"heading-level": 3})
            place += self.parse_content_to_nodes()
        return [place]


class ListParts(SphinxPostTransform):
    """Write the chapters of parts: the time of all, and each one's number, title, question and time."""

    default_priority = 200
    builders = ("html", "dirhtml")

    def run(self, **kwargs):
        """Fill the lists of this page."""
        for place in self.document.findall(nodes.container):
            if "parts" in place:
                self.fill(place)

    def fill(self, place):
        """Put one item for each chapter below the time of all."""
        held = [p for p in chapters(self.env).items() if p[1].part in place["parts"]]
        if not held:
            said, names = "no toctree has the caption %s", ", ".join(place["parts"])
            logger.warning(said, names, location=place)
        items, total = nodes.definition_list(), 0
        for page, chapter in held:
            document, title = self.env.get_doctree(page), self.env.titles[page].astext()
            time = minutes(document)
            total += time
            number = nodes.inline("", chapter.number, classes=["number"])
            name = nodes.inline("", "", number, nodes.Text(f" {title}"))
            link = make_refnode(self.app.builder, self.env.docname, page, None, name)
            asked = [nodes.emphasis("", question(document)), nodes.Text(" ")]
            words = nodes.paragraph("", "", *asked * bool(asked[0].astext()))
            words += nodes.inline("", f"{time} min", classes=["time"])
            item = nodes.definition_list_item("", nodes.term("", "", link))
            item += nodes.definition("", words)
            start = f'<div class="item {nodes.make_id(chapter.part)}">'
            items += [html(start), item, html("</div>")]
        hours = [f"{total // 60} h"] * (total >= 60) + [f"{total % 60} min"] * (
            total % 60 > 0
        )
        said = f"{len(held)} chapters · {' '.join(hours)}"
        place.insert(bool(place.children), nodes.paragraph("", said, classes=["place"]))
        place += items


def question(document):
    """What a page asks in the first paragraph below its title, or nothing."""
    title = document.next_node(nodes.title)
    first = title and title.next_node(nodes.paragraph, descend=False, siblings=True)
    asks = first is not None and [*map(type, first)] == [nodes.emphasis]
    return first.astext() if asks else ""


def fold_parts(app, pagename, templatename, context, doctree):
    """Fold each part in the sidebar behind its name, and number its chapters; the reader's part is open.

    Pages of source code have no list of chapters, which would be a third of them.
    """
    if pagename.startswith("_modules/"):
        context["furo_navigation_tree"] = ""
        return
    tree = BeautifulSoup(context.get("furo_navigation_tree", ""), "html.parser")
    known = chapters(app.env)
    labels = {
        "#" if page == pagename else app.builder.get_relative_uri(pagename, page): chapter
        for page, chapter in known.items()
    }
    for link in tree.select("li.toctree-l1 > a"):
        chapter = labels.get(link["href"])
        if chapter:
            number = tree.new_tag("span", attrs={"class": "number"})
            number.string = chapter.number
            link.insert(0, number, " ")
    for caption in tree.select("p.caption"):
        name, pages = caption.get_text(), caption.find_next_sibling("ul")
        part = tree.new_tag("details", attrs={"class": "part"})
        summary = tree.new_tag("summary")
        summary.string = f"{name} · core" if name in CORE else name
        if pages.select_one(".current") or (pagename not in known and name in CORE):
            part["open"] = ""
        caption.replace_with(part)
        part.extend([summary, pages.extract()])
    context["furo_navigation_tree"] = str(tree)


def setup(app):
    """Register with Sphinx."""
    app.add_directive("place", Place)
    app.add_directive("part", Part)
    app.add_post_transform(NamePlace)
    app.add_post_transform(ListParts)
    # override: until furo folds captions
    app.connect("html-page-context", fold_parts, priority=900)
