"""Search: pagefind indexes what the pages say, by section, and their authors' words beside their titles.

`keywords` under `html_meta` holds what people type who look for the page: "garbage output after loading".
"""

import asyncio
from html import escape

from docutils import nodes
from pagefind.index import PagefindIndex
from sphinx import addnodes

from .chapters import ENGINES

PASSED = (
    nodes.literal_block,
    nodes.math,
    nodes.math_block,
    nodes.raw,
    nodes.image,
    addnodes.index,
)
LISTS = {"genindex", "search", "404", "index", "reference/bibliography"}
WEIGHTS = {
    "api/": 0.2,
    "questions/": 0.3,
    "models/": 0.3,
    "reference/models": 0.6,
}  # of words, beside those of chapters
WEIGHTS |= dict.fromkeys(ENGINES, 0.5)


def pieces(node, level, weight):
    """What a node says, as headings with the addresses of sections, and paragraphs."""
    for child in node.children:
        if isinstance(child, nodes.section):
            yield from pieces(child, level + 1, weight)
        elif isinstance(child, nodes.title) and isinstance(node, nodes.section):
            yield weighed(f"h{level}", child.astext(), (8 - level) * weight, node["ids"][0])
        elif isinstance(child, addnodes.desc_signature):
            yield weighed("p", child.get("fullname", ""), weight)
        elif {"place", "models"} & {*child.get("classes", ())}:
            continue  # the cards of models have pages of their own
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


def searchable(env, page):
    """A page as the index reads it: its author's words beside its title, and its text."""
    document = env.get_doctree(page)
    weight = next((w for start, w in WEIGHTS.items() if page.startswith(start)), 1)
    meta = {m["name"]: m["content"] for m in document.findall(nodes.meta) if "name" in m}
    field = "asked" if weight >= 0.5 else "also"
    words = escape(meta.get("keywords", ""))
    known = f'<p title="{words}" data-pagefind-meta="{field}[title]"></p>'
    body = "\n".join([known, *pieces(document, 0, weight)])
    return f'<!doctype html><html lang="en"><body>{body}</body></html>'


async def index(pages, folder):
    """Write the index of pages, which are addresses and texts, into a folder."""
    async with PagefindIndex(config={"output_path": str(folder)}) as made:
        for address, page in pages.items():
            await made.add_html_file(content=page, url=address)


def write(app, error):
    """Index the site in place of Sphinx's own index, if it is more than one page."""
    if app.builder.name != "html" or error or app.config.book_page:
        return
    target = app.builder.get_target_uri
    listed = [p for p in sorted(app.env.found_docs - LISTS) if not p.startswith("slides/")]
    folder = app.outdir / "pagefind"
    asyncio.run(index({target(p): searchable(app.env, p) for p in listed}, folder))
    for unused in folder.glob("pagefind-[chmu]*"):  # its own panels
        unused.unlink()


def replace(app):
    """Let Sphinx make no index of its own."""
    if app.builder.name == "html":
        # override: until another index may take the place of Sphinx's
        app.builder.search = False
        app.config.html_additional_pages = {"search": "search.html"}


def setup(app):
    """Register with Sphinx."""
    app.connect("builder-inited", replace)
    app.connect("build-finished", write)
