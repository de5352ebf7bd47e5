"""Search: pagefind indexes what the pages say, by section, and weighs titles and an author's own words.

`{keywords}` in a section, or `keywords` under `html_meta` for a whole page, holds what people type who look
for it: "garbage output after loading". No reader sees them: `search.js` leaves out what is between the marks.
"""

import asyncio
from html import escape

from docutils import nodes
from pagefind.index import PagefindIndex
from sphinx import addnodes
from sphinx.transforms.post_transforms import SphinxPostTransform
from sphinx.util.docutils import SphinxDirective

PASSED = (
    nodes.literal_block,
    nodes.math,
    nodes.math_block,
    nodes.raw,
    nodes.image,
    addnodes.index,
)
LISTS = {"genindex", "search", "404", "index", "reference/bibliography"}
WEIGHTS = {"api/": 0.2, "questions/": 0.3}  # of words, beside those of chapters
UNSEEN = "⟦ {} ⟧"
KEYWORDS = 10  # beside 7 for a title, 6 for a heading, and 1 for a word of text


class keywords(nodes.Invisible, nodes.Element):
    """What people type who look for the section."""


class Keywords(SphinxDirective):
    """Take words that are searched for, in lines or between commas."""

    has_content = True

    def run(self):
        """Return the node that the index is made from."""
        if not self.content:
            raise self.error("{keywords} holds what people type who look for this section")
        return [keywords(words=", ".join(self.content))]


class Hide(SphinxPostTransform):
    """Keep the words out of what is written."""

    default_priority = 1

    def run(self, **kwargs):
        """Remove the nodes."""
        for node in list(self.document.findall(keywords)):
            node.parent.remove(node)


def pieces(node, level, weight):
    """What a node says, as headings with the addresses of sections, and paragraphs."""
    for child in node.children:
        if isinstance(child, nodes.section):
            yield from pieces(child, level + 1, weight)
        elif isinstance(child, nodes.title) and isinstance(node, nodes.section):
            yield weighed(f"h{level}", child.astext(), (8 - level) * weight, node["ids"][0])
        elif isinstance(child, keywords):
            yield weighed("p", UNSEEN.format(child["words"]), KEYWORDS * weight)
        elif isinstance(child, addnodes.desc_signature):
            yield weighed("p", child.get("fullname", ""), weight)
        elif "place" in child.get("classes", ()):
            continue
        elif isinstance(child, nodes.TextElement) and not isinstance(child, PASSED):
            if words := text(child).strip():
                yield weighed("p", words, weight)
        elif isinstance(child, nodes.Element) and not isinstance(child, PASSED):
            yield from pieces(child, level, weight)


def weighed(tag, words, weight, place=""):
    """An element that the index weighs, and whose place it knows."""
    return (
        f'<{tag} id="{place}" data-pagefind-weight="{weight:.2g}">{escape(words)}</{tag}>'
    )


def text(node):
    """The words of a paragraph, without formulas."""
    if isinstance(node, nodes.Text):
        return node.astext()
    if isinstance(node, addnodes.pending_xref) and not node.get("refexplicit"):
        return ""  # a citation, or the title of another page
    return "".join(text(n) for n in node.children if not isinstance(n, PASSED))


def said(env, page):
    """A page as the index reads it: its title, its authors' words, its text; a chapter's weigh most."""
    document = env.get_doctree(page)
    weight = next((w for start, w in WEIGHTS.items() if page.startswith(start)), 1)
    meta = (
        m["content"] for m in document.findall(nodes.meta) if m.get("name") == "keywords"
    )
    title, *rest = pieces(document, 0, weight)
    asked = ", ".join(meta)
    known = weighed("p", UNSEEN.format(asked), KEYWORDS * weight)
    if (
        weight == 1
    ):  # then the words count as a second title, but rope_theta is no page on rope
        second = escape(", ".join(words for words in asked.split(", ") if "_" not in words))
        known += f'<p title="{second}" data-pagefind-meta="asked[title]"></p>'
    body = "\n".join([title, known * bool(asked), *rest])
    return f'<!doctype html><html lang="en"><body>{body}</body></html>'


async def index(pages, folder):
    """Write the index of pages, which are addresses and texts, into a folder."""
    async with PagefindIndex(config={"output_path": str(folder)}) as made:
        for address, page in pages.items():
            await made.add_html_file(content=page, url=address)


def write(app, error):
    """Index the site in place of Sphinx's own index."""
    if app.builder.name != "html" or error:
        return
    target = app.builder.get_target_uri
    listed = [p for p in sorted(app.env.found_docs - LISTS) if not p.startswith("slides/")]
    asyncio.run(
        index({target(p): said(app.env, p) for p in listed}, app.outdir / "pagefind")
    )


def replace(app):
    """Let Sphinx make no index of its own."""
    if app.builder.name == "html":
        app.builder.search = False
        app.config.html_additional_pages = {"search": "search.html"}


def setup(app):
    """Register with Sphinx."""
    app.add_directive("keywords", Keywords)
    app.add_post_transform(Hide)
    app.connect("builder-inited", replace)
    app.connect("build-finished", write)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
