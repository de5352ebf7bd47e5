"""Every page as a notebook: `sphinx -b notebooks` writes one per framework, and pages link to theirs.

A notebook needs nothing else: it has what its page shows, in one framework, and a cell that installs
what it runs.
A page whose cells compare the frameworks has one notebook with both; its front matter says so, with what
else there is to install: `notebook: "--no-deps d2l==1.0.3"`.
"""

import re
from html import escape
from pathlib import Path
from urllib.parse import urljoin

import nbformat
from docutils import nodes
from nbformat import v4 as notebook
from pybtex.plugin import find_plugin
from sphinx.builders import Builder
from sphinx.transforms.post_transforms import SphinxPostTransform

from .cells import is_cell
from .markdown import Folded, Pieces
from .site import html

TITLES = {"torch": "PyTorch", "jax": "JAX", "numpy": "NumPy", "both": "PyTorch and JAX"}
EXTRAS = {"torch": "torch,", "jax": "jax,", "numpy": "", "both": "torch,jax,"}
COLAB = "https://colab.research.google.com/github"
KAGGLE = "https://kaggle.com/kernels/welcome?src=https://github.com"
REPOSITORY = re.compile(r"https://github\.com/([\w.-]+/[\w.-]+)")


def frameworks(env, docname):
    """The frameworks for which a page has a notebook: none if it shows no cells."""
    if "notebook" in env.metadata[docname]:
        return ["both"]
    visible = [
        node
        for node in env.get_doctree(docname).findall(nodes.container)
        if is_cell(node, visible=True)
    ]
    if any(is_cell(cell, "torch") for cell in visible):
        return ["torch", "jax"]
    return ["numpy"] if visible else []


def file_name(docname, framework):
    """The path of a notebook below the folder of all notebooks."""
    return f"{docname}-{TITLES[framework].lower().replace(' ', '-')}.ipynb"


class NotebookBuilder(Builder):
    """Writes what each page shows, in each of its frameworks."""

    name = format = "notebooks"
    epilog = "The notebooks are in %(outdir)s."
    allow_parallel = True
    supported_image_types = ("image/svg+xml",)

    def get_outdated_docs(self):
        """All pages: a reference may have changed in any."""
        return self.env.found_docs

    def get_target_uri(self, docname, typ=None):
        """The address of a page on the site."""
        return f"{docname}.html"

    def get_relative_uri(self, from_, to, typ=None):
        """The same from everywhere: a notebook is read in another place."""
        return self.get_target_uri(to)

    def write_doc(self, docname, doctree):
        """Write the notebooks of one page."""
        for framework in frameworks(self.env, docname):
            path = Path(self.outdir, file_name(docname, framework))
            path.parent.mkdir(parents=True, exist_ok=True)
            book = self.made(docname, doctree, framework)
            nbformat.validate(book)
            path.write_text(nbformat.writes(book) + "\n", encoding="utf-8")

    def made(self, docname, doctree, framework):
        """The notebook of a page for one framework."""
        title, *pieces = Pieces(self, docname, framework).of(doctree)
        front = [title, self.origin(docname, framework), self.install(docname, framework)]
        cells = [*front, *pieces, *self.works_cited(docname)]
        book = notebook.new_notebook(cells=list(gathered(cells)))
        kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
        book.metadata = {
            "kernelspec": kernel,
            "language_info": {"name": "python"},
            "posattn": {"page": docname, "framework": framework},
        }
        for number, cell in enumerate(book.cells, 1):
            cell.id = f"cell-{number}"
        return book

    def origin(self, docname, framework):
        """Where the notebook comes from, and for which framework."""
        page = f"the page “{self.env.titles[docname].astext()}”"
        if site := self.config.html_baseurl:
            page = f"[{page}]({site.rstrip('/')}/{self.get_target_uri(docname)})"
        return (
            f"This is {page} of *{self.config.project}*, as a notebook for {TITLES[framework]}.\n"
            "What stands below a cell is what the book's build printed; run the cells to see it again."
        )

    def install(self, docname, framework):
        """The cell that installs what the notebook needs."""
        extras, source = f"posattn[{EXTRAS[framework]}figures,weights]", ""
        if self.config.repository:
            source = f" @ git+{self.config.repository}"
        lines = [f'%pip install --quiet "{extras}{source}"']
        if more := self.env.metadata[docname].get("notebook"):
            lines.append(f"%pip install --quiet {more}")
        return notebook.new_code_cell("\n".join(lines), metadata={"tags": ["install"]})

    def works_cited(self, docname):
        """The works that a page cites, under a heading of their own."""
        domain = self.env.get_domain("cite")
        backend = find_plugin("pybtex.backends", "markdown")()
        keys = {
            target.key
            for reference in domain.citation_refs
            if reference.docname == docname
            for target in reference.targets
        }
        works = {
            citation.key: citation.formatted_entry.text.render(backend)
            for citation in domain.citations
            if citation.key in keys
        }
        items = (f"- {' '.join(work.split())}" for work in works.values())
        return ["## References", "\n".join(items)] if works else []


def gathered(pieces):
    """Cells in order, with the text between two headings or code cells as one."""
    text = []
    for piece in [*pieces, None]:
        if text and (not isinstance(piece, str) or piece.startswith("#")):
            folded = {"jp-MarkdownHeadingCollapsed": True}  # a solution, at first
            metadata = folded if isinstance(text[0], Folded) else {}
            yield notebook.new_markdown_cell("\n\n".join(text), metadata=metadata)
            text = []
        if isinstance(piece, str):
            text.append(piece)
        elif piece is not None:
            yield piece


class Actions(SphinxPostTransform):
    """Put links below what is told first of a page: its notebooks, the PDF and its source."""

    default_priority = 600
    builders = ("html",)

    def run(self, **kwargs):
        """Write the list, if there is a link; the first page has it at its end."""
        items = "".join(
            f'<li><a href="{escape(to)}"{how}>{text}</a></li>'
            for to, text, how in self.links()
        )
        section = self.document.next_node(nodes.section)
        if items and section is not None:
            label = 'aria-label="This page elsewhere"'
            actions = html(f'<ul class="page-actions" {label}>{items}</ul>')
            if self.env.docname == self.config.root_doc:
                self.document += actions
            else:
                places = (at for at, n in enumerate(section) if "place" in n["classes"])
                section.insert(next(places, 0) + 1, actions)

    def links(self):
        """Addresses, texts and attributes."""
        page, config = self.env.docname, self.config
        root, repository = "../" * page.count("/"), REPOSITORY.fullmatch(config.repository)
        for framework in frameworks(self.env, page):
            name, title = file_name(page, framework), TITLES[framework]
            yield f"{root}_notebooks/{name}", f"Notebook ({title})", " download"
            if repository:
                place = f"{repository[1]}/blob/notebooks/{name}"
                yield f"{COLAB}/{place}", f"Colab ({title})", ""
                yield f"{KAGGLE}/{place}", f"Kaggle ({title})", ""
        if config.book_pdf:
            yield urljoin(root, config.book_pdf), "PDF", ""
        if repository:
            source = Path(self.env.doc2path(page)).relative_to(self.app.confdir).as_posix()
            yield f"{config.repository}/edit/main/{source}", "Edit this page", ""


def setup(app):
    """Register with Sphinx."""
    app.add_builder(NotebookBuilder)
    app.add_config_value("repository", "", "html", str)
    app.add_config_value("book_pdf", "", "html", str)
    app.add_post_transform(Actions)
