"""Search: pagefind indexes what the pages say, by section, and weighs titles and an author's own words.

`{keywords}` in a section, or `keywords` under `html_meta` for a whole page, holds what people type who look
for it: "garbage output after loading". No reader sees them but in what the search found.
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
KEYWORDS = 10  # pagefind weighs a title with 7, a heading with 6 and a word of text with 1


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


def searched(words, weight=KEYWORDS):
    """A paragraph that the index weighs."""
    return f'<p data-pagefind-weight="{weight}">{escape(words)}.</p>'


def pieces(node, level, plain):
    """What a node says, as headings with the addresses of sections, and paragraphs."""
    for child in node.children:
        if isinstance(child, nodes.section):
            yield from pieces(child, level + 1, plain)
        elif isinstance(child, nodes.title) and isinstance(node, nodes.section):
            weight = ' data-pagefind-weight="1"' if plain else ""
            place = f'id="{node["ids"][0]}"{weight}'
            yield f"<h{level} {place}>{escape(child.astext())}</h{level}>"
        elif isinstance(child, keywords):
            yield searched(child["words"])
        elif isinstance(child, addnodes.desc_signature):
            yield f"<p>{escape(child.get('fullname', ''))}</p>"
        elif "place" in child.get("classes", ()):
            continue
        elif isinstance(child, nodes.TextElement) and not isinstance(child, PASSED):
            yield f"<p>{escape(text(child))}</p>"
        elif isinstance(child, nodes.Element) and not isinstance(child, PASSED):
            yield from pieces(child, level, plain)


def text(node):
    """The words of a paragraph, without formulas."""
    if isinstance(node, nodes.Text):
        return node.astext()
    if isinstance(node, addnodes.pending_xref) and not node.get("refexplicit"):
        return ""  # a citation, or the title of another page
    return "".join(text(n) for n in node.children if not isinstance(n, PASSED))


def said(env, page):
    """A page as the index reads it: its text and its authors' words, with little weight for the API."""
    document, plain = env.get_doctree(page), page.startswith("api/")
    meta = (
        m["content"] for m in document.findall(nodes.meta) if m.get("name") == "keywords"
    )
    body = "\n".join([*pieces(document, 0, plain), *map(searched, meta)])
    weight = "0.3" if plain else "1"
    start = f'<!doctype html><html lang="en"><body data-pagefind-weight="{weight}">'
    return f"{start}{body}</body></html>"


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
