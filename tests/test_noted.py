"""A small book with a piece of each kind, in every form: what it becomes is what was noted."""

from zipfile import ZipFile

import pytest

from tests import noted, test_docs, test_exercises, test_paper, test_website
from tests.books import ALL, ASSETS, build

OWN = {name: test_paper.PAGES[name] for name in ("table", "small", "card", "sources")}
PAGES = ALL | test_docs.GOOD | OWN | test_website.PAGES | test_exercises.PAGES


def files(folder, ending, read):
    """The texts of all files with an ending, each as `read` leaves it."""
    return {
        str(path.relative_to(folder)): read(path.read_text("utf-8"))
        for path in folder.rglob(f"*{ending}")
    }


def as_site(folder):
    """What is made of the pages."""
    made = {
        name: noted.page(text)
        for name, text in files(folder, ".html", str).items()
        if not name.startswith("_")
    }
    others = files(folder, ".txt", str) | files(folder, ".xml", str)
    return made | {name: text for name, text in others.items() if not name.startswith("_")}


def as_ebook(folder):
    """The pages, and what says how they belong together."""
    with ZipFile(next(folder.glob("*.epub"))) as book:
        texts = {n: book.read(n).decode() for n in book.namelist() if n.endswith(ENDINGS)}
    return {n: noted.page(t) if n.endswith("html") else t for n, t in texts.items()}


ENDINGS = (".xhtml", ".opf", ".ncx")
FORMS = {
    "html": (ASSETS + test_website.CONF, as_site),
    "notebooks": ("", lambda folder: files(folder, ".ipynb", noted.notebook)),
    "latex": ("", lambda folder: files(folder, ".tex", noted.tex)),
    "epub": ("", as_ebook),
}


@pytest.mark.parametrize("form", FORMS)
def test_what_is_built_is_what_was_noted(form, tmp_path):
    for name in PAGES:
        (tmp_path / name).parent.mkdir(exist_ok=True)
    settings, read = FORMS[form]
    folder, code, said = build(tmp_path, PAGES, builder=form, settings=settings)
    assert code == 0, said
    texts = {
        name: text.replace(str(tmp_path), "BOOK") for name, text in read(folder).items()
    }
    noted.compare(form, texts)
