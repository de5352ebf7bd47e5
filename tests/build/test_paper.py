"""The book on paper and as an EPUB: what the transforms make of a small one, and what its proof finds."""

import re
import subprocess
import sys
from zipfile import ZIP_DEFLATED, ZIP_STORED, ZipFile

import pytest

from tests.build.books import FIGURE, ROOT, build, cell

pytestmark = pytest.mark.slow  # small books

PAGES = {
    "pair": "*Which one?*\n\n"
    + cell("print(1 + 1)\n" + FIGURE.format(last=3), "torch")
    + cell("print(2)  # twin\n" + FIGURE.format(last=3), "jax")
    + "{.screen}\nPress the button.\n\n$x^2$\n",
    "solution": "{.solution}\n## Answer\n\nforty-two\n\n" + cell("print('executed')"),
    "table": "|" + "head|" * 9 + "\n|" + "-|" * 9 + "\n|" + "cell|" * 9 + "\n",
    "small": "```{table}\n:class: small\n\n|a|b|\n|-|-|\n|c|`f(x.y, z=1)`|\n```\n",
    "card": "[it](#scheme-a)\n\n"
    + cell(
        "from myst_nb import glue\nfrom posattn import figures\n"
        "glue('scheme-a', figures.score_map([[0.0, 1.0]]), display=False)",
        "remove-cell",
    )
    + "::::{container} scheme\n:::{glue:figure} scheme-a\n:alt: a picture\n:::\n"
    ":::{rubric} A card, 2020\n:name: scheme-a\n:::\nIts idea.\n::::\n",
    "sources": "for contributors\n",
}


def faults(said):
    """The warnings of a build."""
    return re.findall("WARNING: .*", said)


@pytest.fixture(scope="module")
def paper(tmp_path_factory):
    folder, _, said = build(tmp_path_factory.mktemp("paper"), PAGES, builder="latex")
    assert faults(said) == []
    return next(folder.glob("*.tex")).read_text()


@pytest.fixture(scope="module")
def packed(tmp_path_factory):
    folder, _, said = build(tmp_path_factory.mktemp("ebook"), PAGES, builder="epub")
    assert faults(said) == []
    with ZipFile(next(folder.glob("*.epub"))) as book:
        yield book


@pytest.fixture(scope="module")
def ebook(packed):
    return {name: packed.read(name).decode() for name in packed.namelist()}


def test_an_ebook_begins_with_its_type_as_it_is_and_has_no_script(packed, ebook):
    first, *others = packed.infolist()
    assert (first.filename, first.compress_type) == ("mimetype", ZIP_STORED)
    assert {each.compress_type for each in others} == {ZIP_DEFLATED}
    assert {each.date_time for each in (first, *others)} == {(2026, 1, 1, 0, 0, 0)}
    assert not [name for name, text in ebook.items() if "<script" in text]


def test_paper_has_one_framework_and_its_figure_once(paper):
    assert "twin" not in paper
    assert "PyTorch" not in paper
    assert paper.count(r"\sphinxincludegraphics") == 2  # and that of a card


def test_code_asks_for_room_with_what_it_printed(paper):
    assert r"\roomfor{" in paper[: paper.index(r"\begin{sphinxVerbatim}")]


def test_what_only_a_screen_needs_is_not_printed(paper, ebook):
    assert "button" not in paper
    assert "button" not in ebook["pair.xhtml"]


def test_pages_for_contributors_are_not_printed(paper, ebook):
    assert "for contributors" not in paper
    assert "sources.xhtml" not in ebook


def test_solutions_are_printed_plainly(paper, ebook):
    assert "forty\\sphinxhyphen{}two" in paper
    assert "forty-two" in ebook["solution.xhtml"]
    assert "<details" not in ebook["solution.xhtml"]


def test_a_card_has_its_picture_beside_its_text_and_links_lead_to_it(paper):
    card = paper[paper.index(r"\cardpicture{}") : paper.index(r"\cardend{}")]
    picture, text = card.split(r"\cardtext{}")
    assert r"\sphinxincludegraphics[width=34mm]" in picture
    assert r"\begin{figure}" not in card
    assert text.index(r"\label{\detokenize{card:scheme-a}}") < text.index("A card, 2020")
    assert r"\hyperref[\detokenize{card:scheme-a}]" in paper


def test_code_in_a_small_table_may_end_where_python_lets_it(paper):
    table = paper[paper.index(r"\begin{smalltable}") : paper.index(r"\end{smalltable}")]
    assert r"f(\allowbreak{}x.\allowbreak{}y,\allowbreak{} z=\allowbreak{}1)" in table


def test_the_headings_of_a_wide_table_stand_upright(paper):
    assert paper.count(r"\rotatebox{90}{head}") == 9


def test_an_ebook_has_mathml_pictures_and_no_script(ebook):
    page = ebook["pair.xhtml"]
    assert "<math" in page
    assert "katex-html" not in page
    assert "<svg" not in page
    assert "<script" not in page
    assert re.search(r'<img[^>]* src="_images/\w+\.svg"', page)
    assert re.search(r'href="pair.xhtml"[^>]* properties="mathml"', ebook["content.opf"])
    assert not re.search(r'href="solution.xhtml"[^>]* properties', ebook["content.opf"])


@pytest.mark.parametrize(
    ("line", "fails"),
    [
        ("Overfull \\hbox (4.9pt too wide) in paragraph at lines 1--2", False),
        ("Overfull \\hbox (5.1pt too wide) in paragraph at lines 1--2", True),
        ("Missing character: There is no x in font y!", True),
        ("LaTeX Warning: Reference `z' on page 1 undefined on input line 3.", True),
        ("Package hyperref Info: Option `unicode' set `true'.", False),
    ],
)
def test_the_log_is_read(tmp_path, line, fails):
    log = tmp_path / "book.log"
    log.write_text(f"This is XeTeX\n{line}\n")
    proof = [sys.executable, str(ROOT / ".ci" / "proofread.py"), str(log)]
    result = subprocess.run(proof, capture_output=True, text=True, check=False)
    assert (result.returncode, line in result.stderr) == (int(fails), fails)
